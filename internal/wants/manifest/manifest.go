package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	yaml "sigs.k8s.io/yaml/goyaml.v3"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// Limits on one input.
const (
	// MaxBytes is the maximum size of a file in bytes.
	MaxBytes = 4 << 20
	// MaxObjects is the maximum number of objects in a file, and also of documents.
	MaxObjects = 4096
)

// Decode returns the objects in data, which may be several YAML or JSON documents. It fills in
// defaults and checks the objects with [resolve.Check]. file is for messages. If there is an error,
// it is of type [Errors], and Decode returns no objects.
func Decode(file string, data []byte) ([]runtime.Object, error) {
	d, err := decodeUntil(never, file, data, false)
	return d.Objects, err
}

// DecodeContext is like Decode, but stops when ctx ends and then returns an error that wraps ctx's
// cause. notes say, by object, what of it is taken otherwise than it is written.
func DecodeContext(ctx context.Context, file string, data []byte) (
	objects []runtime.Object, notes map[resolve.Key]string, err error,
) {
	d, err := decodeUntil(goneWith(ctx), file, data, false)
	return d.Objects, d.Notes, err
}

// goneWith returns a gone function for a caller that waits until ctx ends.
func goneWith(ctx context.Context) func() error {
	return func() error {
		if ctx.Err() == nil {
			return nil
		}
		return context.Cause(ctx)
	}
}

// Decoded is what a file has.
type Decoded struct {
	Objects []runtime.Object
	Others  []Other
	// Notes say, by object, what of it is taken otherwise than it is written.
	Notes map[resolve.Key]string
}

// never is a gone function for callers that wait indefinitely.
func never() error { return nil }

func decodeUntil(gone func() error, file string, data []byte, skips bool) (Decoded, error) {
	if len(data) > MaxBytes {
		return Decoded{}, Errors{{File: file, Problem: fmt.Sprintf("found %d bytes, want at most %d", len(data), MaxBytes)}}
	}
	if objects, ok := decodeJSON(data); ok {
		return Decoded{Objects: objects}, nil
	}
	if n := marks(data); n > maxMarks {
		return Decoded{}, Errors{{File: file, Problem: fmt.Sprintf("found %d line ends, commas and other marks of YAML, "+
			"want at most %d in a file", n, maxMarks)}}
	}
	d := newDecoder(gone, file, maxWork)
	d.skips = skips
	err := d.all(data)
	return Decoded{d.objects, d.others, d.notes}, err
}

// Reload decodes the output of Keep or Encode. It has no size limit, since the output may be larger
// than its original.
func Reload(name string, data []byte) ([]runtime.Object, error) {
	if data, ok := bytes.CutPrefix(data, []byte(keptMark)); ok {
		obj, err := decodeKept(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return []runtime.Object{obj}, nil
	}
	if obj, ok := reload(data); ok {
		return []runtime.Object{obj}, nil
	}
	objects, _, err := decode(never, name, data, math.MaxInt)
	return objects, err
}

// reload decodes one object as Encode writes it, some ten times as fast as decode, which is for
// manifests written by people. A restarting node reads all its objects this way. It returns false
// for anything that Encode would not write.
func reload(data []byte) (runtime.Object, bool) {
	k, ok := kindEncoded(data)
	if !ok {
		return nil, false
	}
	obj := k.make()
	if !unmarshal(data, obj) {
		return nil, false
	}
	key, err := resolve.KeyOf(obj)
	if err != nil || resolve.Namespaced(k.name) != (obj.GetNamespace() != "") {
		return nil, false
	}
	fill(obj, k, key)
	if len(resolve.Check(obj)) > 0 {
		return nil, false
	}
	return obj, true
}

// kindEncoded returns the kind of an object encoded by Encode, from its first bytes.
func kindEncoded(data []byte) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool {
		rest, ok := bytes.CutPrefix(data, []byte(`{"kind":"`+k.name+`","apiVersion":"`+k.apiVersion+`"`))
		return ok && len(rest) > 0 && (rest[0] == ',' || rest[0] == '}')
	})
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// decode decodes YAML documents until gone returns an error.
func decode(gone func() error, file string, data []byte, budget int) (
	objects []runtime.Object, notes map[resolve.Key]string, err error,
) {
	d := newDecoder(gone, file, budget)
	err = d.all(data)
	return d.objects, d.notes, err
}

func newDecoder(gone func() error, file string, budget int) *decoder {
	return &decoder{
		file: file, budget: budget, gone: gone, notes: map[resolve.Key]string{},
		seen: map[resolve.Key]int{}, fields: map[reflect.Type]map[string][]int{},
	}
}

// all decodes YAML documents. After an error there are no objects.
func (d *decoder) all(data []byte) error {
	stream := yaml.NewDecoder(until(d.gone, plainJSON(data)))
	for d.document = 1; len(d.errs) < maxErrors; d.document++ {
		var n yaml.Node
		err := stream.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d.syntax(err)
			break
		}
		if d.document > MaxObjects {
			d.add(n.Line, "", fmt.Sprintf("want at most %d documents", MaxObjects))
			break
		}
		if !d.affordable(&n) {
			break
		}
		if len(n.Content) == 1 && !null(n.Content[0]) {
			d.top(n.Content[0], "")
		}
	}
	d.refuseOthers()
	err := d.gone()
	switch {
	case err != nil:
		err = fmt.Errorf("decode %s: %w", d.file, err)
	case len(d.errs) > 0:
		err = d.errs[:min(len(d.errs), maxErrors)]
	default:
		return nil
	}
	d.objects, d.others, d.notes = nil, nil, nil
	return err
}

// syntaxLine matches the start of the YAML parser's messages.
var syntaxLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// fromZero matches the messages in which the YAML parser counts lines from 0.
var fromZero = regexp.MustCompile(`^did not find expected (node content|key|<|'-' indicator|',' or)`)

func (d *decoder) syntax(err error) {
	text := err.Error()
	m := syntaxLine.FindStringSubmatch(text)
	if m == nil {
		m = []string{"", ""}
	}
	text = strings.TrimPrefix(text, m[0])
	line, err := strconv.Atoi(m[1])
	switch {
	case strings.HasPrefix(text, "unknown anchor"):
		// The parser's message contains the name, which may be a secret's value without its quotes.
		text = "an alias (*name) without an anchor (&name); a text that begins with * needs quotes"
	case err != nil && d.document == 1:
		line = 1 // the parser omits the first line
	case fromZero.MatchString(text):
		line++
	}
	d.object = ""
	d.add(line, "", "not YAML: "+text)
}

// top decodes one document, or one item of the list kind in.
func (d *decoder) top(n *yaml.Node, in string) {
	d.object = ""
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		d.add(n.Line, "", "found "+describe(n)+", want an object with apiVersion and kind")
		return
	}
	apiVersion, name := text(n, "apiVersion"), text(n, "kind")
	item, _ := itemsOf(in)
	if name == "" {
		name = item
	}
	if _, ok := itemsOf(name); ok && in == "" {
		d.list(n, name)
		return
	}
	k, ok := kindNamed(name)
	switch {
	case name == "":
		d.add(n.Line, "kind", "missing; want one of "+strings.Join(KindNames(), ", "))
	case !ok:
		d.otherKind(n, name)
	case !k.has(apiVersion) && (apiVersion != "" || item == ""):
		d.add(lineOf(n, "apiVersion"), "apiVersion", "found "+strconv.Quote(cut(apiVersion))+", want "+k.apiVersion+
			" for a "+k.name)
	default:
		d.typed(n, k)
	}
}

// list decodes the items of a list kind. Nested lists are rejected.
func (d *decoder) list(n *yaml.Node, in string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, deref(n.Content[i+1])
		switch key {
		case "apiVersion", "kind", "metadata":
		case "items":
			if value.Kind != yaml.SequenceNode && !null(value) {
				d.add(value.Line, "items", "found "+describe(value)+", want a list")
				continue
			}
			for _, one := range value.Content {
				if len(d.errs) >= maxErrors || len(d.objects) >= MaxObjects {
					break
				}
				d.top(one, in)
			}
			if len(value.Content) > MaxObjects {
				d.add(value.Line, "items", fmt.Sprintf("want at most %d objects in a file", MaxObjects))
			}
		default:
			d.add(n.Content[i].Line, key, "unknown field of a list; want items")
		}
	}
}

// typed decodes an object of the kind.
func (d *decoder) typed(n *yaml.Node, k kind) {
	meta := child(n, "metadata")
	namespace := text(meta, "namespace")
	key := resolve.Key{Kind: k.name, Name: text(meta, "name")}
	if resolve.Namespaced(k.name) {
		key.Namespace = namespace
		if namespace == "" {
			key.Namespace = corev1.NamespaceDefault
		}
	}
	d.object = key.String()
	obj := k.make()
	before := len(d.errs)
	d.value(n, reflect.ValueOf(obj).Elem(), "")
	if len(d.errs) > before {
		return
	}
	d.note(obj, key)
	fill(obj, k, key)
	for _, f := range resolve.Check(obj) {
		d.add(lineOf(n, f.Field), f.Field, strings.TrimPrefix(f.String(), f.Field+": "))
	}
	if first, again := d.seen[key]; again {
		d.add(n.Line, "", fmt.Sprintf("already in line %d of this file", first))
		return
	}
	d.seen[key] = n.Line
	if len(d.objects) >= MaxObjects {
		d.add(n.Line, "", fmt.Sprintf("want at most %d objects in a file", MaxObjects))
		return
	}
	d.objects = append(d.objects, obj)
}

// note says what fill takes otherwise than obj says it, as an API server takes it, or as no volume is emptied here.
func (d *decoder) note(obj object, key resolve.Key) {
	var notes []string
	if key.Namespace == "" && obj.GetNamespace() != "" {
		notes = append(notes, "metadata.namespace is ignored: a "+key.Kind+" has none")
	}
	if recycles(obj) {
		notes = append(notes, "spec.persistentVolumeReclaimPolicy Recycle is taken as Retain: csi-volmgr empties no volume")
	}
	if len(notes) > 0 {
		d.notes[key] = strings.Join(notes, "; ")
	}
}

// recycles reports whether obj is a PersistentVolume that is to be emptied for the next claim, which Kubernetes takes
// only for nfs and hostPath, and only from old objects.
func recycles(obj runtime.Object) bool {
	pv, ok := obj.(*corev1.PersistentVolume)
	return ok && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle
}

// Default sets the defaults that Decode sets, in an object that a program made. It changes obj, and does nothing to an
// object of another kind, which [resolve.KeyOf] refuses.
func Default(obj runtime.Object) {
	o, ok := obj.(object)
	key, err := resolve.KeyOf(obj)
	if !ok || err != nil {
		return
	}
	if key.Namespace == "" && resolve.Namespaced(key.Kind) {
		key.Namespace = corev1.NamespaceDefault
	}
	if k, ok := kindNamed(key.Kind); ok {
		fill(o, k, key)
	}
}

// fill sets the defaults that an API server would set.
func fill(obj object, k kind, key resolve.Key) {
	obj.SetNamespace(key.Namespace)
	obj.GetObjectKind().SetGroupVersionKind(gvk(k))
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		if recycles(o) {
			o.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}
	case *corev1.Pod, *corev1.PersistentVolumeClaim, *snapshotv1.VolumeSnapshot, *groupv1.VolumeGroupSnapshot:
		if obj.GetUID() == "" {
			obj.SetUID(resolve.UID(key))
		}
	case *corev1.Secret:
		for name, value := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[name] = []byte(value)
		}
		o.StringData = nil
	case *storagev1.CSIDriver:
		if p := o.Spec.FSGroupPolicy; p == nil || *p == "" {
			byDefault := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
			o.Spec.FSGroupPolicy = &byDefault
		}
	}
}

// Encode returns the object as JSON that Decode can read.
func Encode(obj runtime.Object) ([]byte, error) {
	key, err := resolve.KeyOf(obj)
	if err != nil {
		return nil, err
	}
	k, _ := kindNamed(key.Kind)
	if obj.GetObjectKind().GroupVersionKind() != gvk(k) {
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(gvk(k))
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}
	return b, nil
}
