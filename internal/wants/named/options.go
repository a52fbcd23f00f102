package named

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrInvalid means that a name or an option is invalid.
var ErrInvalid = errors.New("invalid")

// Names of the front ends.
const (
	Docker = "docker" // the volume plugin, for Docker and podman
	Mount  = "mount"  // mount -t csi
	Nomad  = "nomad"  // Nomad's dynamic host volumes
)

// defaultSubdir is the directory of a provisioned volume that users get. A new ext4 contains
// lost+found, and images want an empty directory. Docker's local driver uses the same name.
const defaultSubdir = "_data"

// defaultSize is the size in bytes of a provisioned volume if the user gave none.
const defaultSize = 1 << 30

// leastSize is the least size in bytes that a user may ask for: no file system of use is smaller, and size=10 is a
// forgotten unit.
const leastSize = 1 << 20

// Options define a named volume and how its users get it.
type Options struct {
	// Namespace is the claim's namespace; never "".
	Namespace string `json:"namespace"`
	// Claim is the claim's name; never "".
	Claim string `json:"claim"`
	// Existing means that the claim belongs to another source and stays when the volume is removed.
	Existing bool `json:"existing,omitempty"`
	// Class is the StorageClass; "" means the default class.
	Class string `json:"class,omitempty"`
	// SizeBytes is the size that the claim requests.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// LimitBytes is the largest size that the claim may get; 0 means no limit.
	LimitBytes int64                             `json:"limitBytes,omitempty"`
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`
	// FSType and MountOptions override the class's if they are set.
	FSType       string   `json:"fsType,omitempty"`
	MountOptions []string `json:"mountOptions,omitempty"`
	// Delete means that removing the volume deletes its data.
	Delete bool `json:"delete,omitempty"`
	// Driver, Handle and Attributes identify a volume that already exists in a driver.
	Driver     string            `json:"driver,omitempty"`
	Handle     string            `json:"handle,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Subdir is the directory of the volume that users get; "" is its root.
	Subdir string `json:"subdir,omitempty"`
	// Owner is the owner and mode of that directory.
	Owner state.Owner `json:"owner,omitzero"`
}

// attribute is the prefix of options that are attributes of a static volume.
const attribute = "attribute."

// knownOptions are the options of Create, except for attributes.
var knownOptions = [...]string{
	"accessMode", "claim", "class", "driver", "fsType", "gid", "handle", "mode", "mountOptions", "namespace", "reclaim",
	"size", "subdir", "uid",
}

// parse parses the options that a front end passes with a name, whose place is at. Its errors wrap ErrInvalid and
// name the option, the value, and what would be right.
func parse(at place, given map[string]string) (Options, error) {
	p := parser{at: at}
	p.given = p.spelled(given)
	o := Options{
		Namespace: p.word("namespace", at.namespace), Claim: p.word("claim", ""), Class: p.word("class", ""),
		FSType: p.word("fsType", ""), MountOptions: p.list("mountOptions"), Driver: p.word("driver", ""),
		Handle: p.word("handle", ""), Attributes: p.attributes(), SizeBytes: p.size(), AccessMode: p.accessMode(),
		Delete: p.reclaim(), Owner: state.Owner{UID: p.id("uid"), GID: p.id("gid"), Mode: p.mode()},
	}
	o.Existing = o.Claim != ""
	static := o.Driver != "" || o.Handle != ""
	p.unknown()
	p.contradictions(o, static)
	o.Subdir = p.subdir(!o.Existing && !static)
	if o.Claim == "" {
		o.Claim = at.claim
	}
	if !o.Existing {
		if o.LimitBytes = at.limit; o.SizeBytes == 0 {
			o.SizeBytes = at.size
		}
		if o.AccessMode == "" {
			o.AccessMode = corev1.ReadWriteOnce
		}
	}
	if len(p.wrong) > 0 {
		return Options{}, fmt.Errorf("volume %s: %w: %s", at.name, ErrInvalid, strings.Join(p.wrong, "; "))
	}
	return o, nil
}

// anonymousDigits is the length of the names that Docker gives to volumes whose users name none.
const anonymousDigits = 64

// anonymous reports whether Docker made up the name of the volume, as for an image's VOLUME. Its user can give no
// option, and has no name to find the data by once the container is gone.
func anonymous(r Request) bool {
	return r.FrontEnd == Docker && len(r.Options) == 0 && len(r.Name) == anonymousDigits &&
		strings.Trim(r.Name, "0123456789abcdef") == ""
}

// claimOf returns the claim for a volume's name. mount -t csi uses NAMESPACE/CLAIM. Compose joins
// its project and the volume with an underscore, which a claim's name must not contain.
func claimOf(volume string) (namespace, claim string) {
	namespace, claim, ok := strings.Cut(volume, "/")
	if !ok {
		namespace, claim = corev1.NamespaceDefault, volume
	}
	return namespace, strings.ReplaceAll(claim, "_", "-")
}

// parser parses options and collects errors.
type parser struct {
	given map[string]string
	at    place
	wrong []string
}

// aliases are options as podman passes them. It reads uid, gid and size also from o, and from the annotations of
// kube play.
var aliases = [...][2]string{{"UID", "uid"}, {"GID", "gid"}, {"SIZE", "size"}}

// spelled returns the options by our names. The value of o is a list, as mount -t csi takes it.
func (p *parser) spelled(given map[string]string) map[string]string {
	all, lists := maps.Clone(given), []string{}
	add := func(key, value string) {
		if was, has := all[key]; has && was != value {
			p.wrong = append(p.wrong, fmt.Sprintf("option %s: found %q and %q, want one value", key, was, value))
		}
		all[key] = value
	}
	for _, a := range aliases {
		if value, has := all[a[0]]; has {
			delete(all, a[0])
			add(a[1], value)
		}
	}
	list, has := all["o"]
	if !has {
		return all
	}
	delete(all, "o")
	for option := range strings.SplitSeq(list, ",") {
		key, value, ok := strings.Cut(option, "=")
		switch {
		case option == "":
		case !ok:
			p.wrong = append(p.wrong, fmt.Sprintf("option o: found %q, want KEY=VALUE; for an option of the volume's file "+
				"system mountOption=%s", option, option))
		case key == "mountOption":
			lists = append(lists, value)
		default:
			add(key, value)
		}
	}
	if len(lists) > 0 {
		add("mountOptions", strings.Join(lists, ","))
	}
	return all
}

func (p *parser) fault(option, found, want string) {
	p.wrong = append(p.wrong, fmt.Sprintf("option %s: found %q, want %s", option, found, want))
}

func (p *parser) word(option, otherwise string) string {
	v, ok := p.given[option]
	if !ok {
		return otherwise
	}
	if v == "" {
		p.fault(option, v, "a value, or leave the option out")
	}
	return v
}

func (p *parser) list(option string) []string {
	v := p.word(option, "")
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}

func (p *parser) size() int64 {
	v := p.word("size", "")
	if v == "" {
		return 0
	}
	q, err := resource.ParseQuantity(v)
	if err != nil || q.Sign() <= 0 {
		p.fault("size", v, "a quantity such as 1Gi")
		return 0
	}
	if q.Value() < leastSize && !p.isBytes(v) && !(p.at.was != nil && p.at.was.SizeBytes == q.Value()) {
		p.fault("size", v, fmt.Sprintf("at least 1Mi: it is %d bytes; write a unit, such as %dGi", q.Value(),
			max(q.Value(), 1)))
	}
	return q.Value()
}

// isBytes reports whether a size is bytes that no person typed: Nomad passes its capacity_min so.
func (p *parser) isBytes(v string) bool {
	return p.at.frontEnd == Nomad && strings.Trim(v, "0123456789") == ""
}

func (p *parser) accessMode() corev1.PersistentVolumeAccessMode {
	modes := map[string]corev1.PersistentVolumeAccessMode{
		"RWO": corev1.ReadWriteOnce, "ROX": corev1.ReadOnlyMany, "RWX": corev1.ReadWriteMany, "RWOP": corev1.ReadWriteOncePod,
	}
	for _, m := range slices.Collect(maps.Values(modes)) {
		modes[string(m)] = m
	}
	v := p.word("accessMode", "")
	m, ok := modes[v]
	if v != "" && !ok {
		p.fault("accessMode", v, "ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod")
	}
	return m
}

func (p *parser) reclaim() (del bool) {
	switch v := p.word("reclaim", "Retain"); v {
	case "Delete":
		return true
	case "Retain", "":
	default:
		p.fault("reclaim", v, "Retain or Delete")
	}
	return false
}

func (p *parser) id(option string) *int {
	v := p.word(option, "")
	if v == "" {
		return nil
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		p.fault(option, v, "a number from 0 to 2147483647")
	}
	return new(int(n))
}

func (p *parser) mode() *fs.FileMode {
	v := p.word("mode", "")
	if v == "" {
		return nil
	}
	n, err := strconv.ParseUint(v, 8, 32)
	mode := new(fs.FileMode(n))
	switch {
	case p.at.frontEnd == Docker && v[0] != '0' && !(err == nil && p.at.was.hasMode(*mode)):
		p.fault("mode", v, numberMode(v))
	case err != nil || n > 0o7777:
		p.fault("mode", v, "an octal mode such as 0750")
	}
	return mode
}

// numberMode says what is right instead of a mode without a leading 0. Compose reads mode: 0770 as YAML does, and
// passes the number 504, which is a mode of its own as octal digits.
func numberMode(v string) string {
	want := "octal digits after a 0, such as 0770; in a YAML file write it in quotes, since 0770 without quotes is the " +
		"number 504 there"
	if n, err := strconv.ParseUint(v, 10, 32); err == nil && n <= 0o7777 {
		want += fmt.Sprintf(": if the file has %04o, write mode: \"%04o\"", n, n)
	}
	return want
}

// hasMode reports whether a volume that exists gives its directory that mode; o may be nil.
func (o *Options) hasMode(m fs.FileMode) bool {
	return o != nil && o.Owner.Mode != nil && *o.Owner.Mode == m
}

// subdir returns the directory that users get; a provisioned volume has one by default.
func (p *parser) subdir(isMade bool) string {
	v, ok := p.given["subdir"]
	switch clean := path.Clean(v); {
	case !ok && isMade:
		return defaultSubdir
	case !ok, v == "/", v == ".":
		return ""
	case v == "" || path.IsAbs(v) || clean == ".." || strings.HasPrefix(clean, "../"):
		p.fault("subdir", v, "a path within the volume, or . for its root")
		return ""
	default:
		return clean
	}
}

func (p *parser) attributes() map[string]string {
	found := map[string]string{}
	for k, v := range p.given {
		if key, ok := strings.CutPrefix(k, attribute); ok {
			if key == "" {
				p.fault(k, v, "attribute.KEY")
			}
			found[key] = v
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

func (p *parser) unknown() {
	for _, k := range slices.Sorted(maps.Keys(p.given)) {
		if !slices.Contains(knownOptions[:], k) && !strings.HasPrefix(k, attribute) {
			p.wrong = append(p.wrong, fmt.Sprintf("option %s is not known; there are: %s, %sKEY", k,
				strings.Join(knownOptions[:], ", "), attribute))
		}
	}
}

// contradictions reports options that exclude each other.
func (p *parser) contradictions(o Options, static bool) {
	refuse := func(with string, options ...string) {
		for _, k := range options {
			if _, ok := p.given[k]; ok {
				p.wrong = append(p.wrong, fmt.Sprintf("options %s and %s contradict: leave one out", with, k))
			}
		}
	}
	switch {
	case o.Existing:
		refuse("claim", "class", "size", "accessMode", "fsType", "mountOptions", "reclaim", "driver", "handle")
	case static:
		refuse("driver", "class")
		if o.Delete {
			p.wrong = append(p.wrong, "options driver and reclaim=Delete contradict: csi-volmgr did not make the volume")
		}
		for option, v := range map[string]string{"driver": o.Driver, "handle": o.Handle} {
			if v == "" {
				p.wrong = append(p.wrong, "option "+option+" is missing: a volume that exists has a driver and a handle")
			}
		}
	}
	if len(o.Attributes) > 0 && !static {
		p.wrong = append(p.wrong, "options attribute.KEY need options driver and handle")
	}
}
