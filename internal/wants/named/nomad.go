package named

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Any stands for each of Nomad's namespaces and each value in a [NomadRule].
const Any = "*"

// What an operator allows Nomad's volumes: claims of a namespace that is not their own, volumes that exist in a
// driver, and to change the owner of what was not made for them.
const (
	allowNamespace = "namespace"
	allowDriver    = "driver"
	allowOwner     = "owner"
)

// NomadRule allows the volumes of one of Nomad's namespaces, whose authors are users of Nomad, more than their own
// claims.
type NomadRule struct {
	// Tenant is Nomad's namespace, or Any.
	Tenant string
	// Option is namespace, driver or owner. Value is the namespace or the driver, or Any.
	Option, Value string
}

// ParseNomadRule reads TENANT/namespace=NAMESPACE, TENANT/driver=DRIVER and TENANT/owner.
func ParseNomadRule(text string) (r NomadRule, ok bool) {
	var has bool
	r.Tenant, r.Option, ok = strings.Cut(text, "/")
	r.Option, r.Value, has = strings.Cut(r.Option, "=")
	switch r.Option {
	case allowNamespace, allowDriver:
		ok = ok && has && r.Value != ""
	case allowOwner:
		r.Value, ok = Any, ok && !has
	default:
		ok = false
	}
	return r, ok && r.Tenant != ""
}

// nomadDefault is Nomad's namespace if it does not say one.
const nomadDefault = "default"

// NomadNamespace returns the namespace of the claims that are made for the volumes of one of Nomad's namespaces. No
// two of those share one: a name that is not a DNS label, or is too long for one with a prefix, is hashed, and no
// other name begins as a hashed one does.
func NomadNamespace(tenant string) string {
	tenant = cmp.Or(tenant, nomadDefault)
	label := NomadPrefix + tenant
	if !strings.HasPrefix(tenant, "-") && len(validation.IsDNS1123Label(label)) == 0 {
		return label
	}
	sum := sha256.Sum256([]byte(tenant))
	return NomadPrefix + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// allows reports whether the operator allows an option's value to the volumes of one of Nomad's namespaces.
func (p *Provider) allows(tenant, option, value string) bool {
	return slices.ContainsFunc(p.c.NomadAllow, func(r NomadRule) bool {
		return r.Option == option && (r.Tenant == Any || r.Tenant == cmp.Or(tenant, nomadDefault)) &&
			(r.Value == Any || r.Value == value)
	})
}

// setting is the setting that allows it.
func setting(tenant, option, value string) string {
	text := "csi-volmgr run --nomad-allow=" + cmp.Or(tenant, nomadDefault) + "/" + option
	if option != allowOwner {
		text += "=" + value
	}
	return text
}

// checkNomad returns why a new volume of Nomad may not have its options, or "": their author is a user of Nomad, and
// not the operator.
func (p *Provider) checkNomad(v Volume) string {
	o := v.Options
	refused := func(words, option, value string) string {
		return fmt.Sprintf("%s; the operator allows that with: %s", words, setting(v.Tenant, option, value))
	}
	switch own := NomadNamespace(v.Tenant); {
	case v.FrontEnd != Nomad:
	case o.Namespace != own && !p.allows(v.Tenant, allowNamespace, o.Namespace):
		return refused(fmt.Sprintf("option namespace: found %s, but the volumes of this namespace of Nomad have claims of "+
			"namespace %s only", o.Namespace, own), allowNamespace, o.Namespace)
	case o.Driver != "" && !p.allows(v.Tenant, allowDriver, o.Driver):
		return refused("options driver, handle and attribute.KEY: a volume of Nomad is made for it, and may not name one "+
			"that is there", allowDriver, o.Driver)
	case o.Existing && p.c.Catalog.Provider(v.claimKey()) == "":
		return p.noClaim(v)
	case !v.made() && !o.Owner.IsZero() && !p.allows(v.Tenant, allowOwner, Any):
		return refused("options uid, gid and mode: the owner of what was not made for this volume stays", allowOwner, Any)
	}
	return ""
}

// made reports whether the storage was made for the volume.
func (v Volume) made() bool { return !v.Options.Existing && v.Options.Driver == "" }

// owner returns the owner to give the volume's directory to. Nomad's volumes change that of what was not made for them
// only if the operator allows it, also those of an earlier version.
func (p *Provider) owner(v Volume) state.Owner {
	if v.FrontEnd == Nomad && !v.made() && !p.allows(v.Tenant, allowOwner, Any) {
		return state.Owner{}
	}
	return v.Options.Owner
}

// checkLimit returns why a volume may not have its size, or "".
func checkLimit(o Options) string {
	if o.LimitBytes == 0 || o.SizeBytes <= o.LimitBytes {
		return ""
	}
	return fmt.Sprintf("option size: found %s, want at most %s (capacity_max)", quantity(o.SizeBytes),
		quantity(o.LimitBytes))
}

// place is where a volume has its claim, and how large that is, unless its options say so.
type place struct {
	name, namespace, claim string
	// size is in bytes; limit is the largest size, 0 for none.
	size, limit int64
	// frontEnd is who names the volume, and was what the volume is, if it exists: what it has is not refused.
	frontEnd string
	was      *Options
}

// placeOf returns the place of a volume that Docker, podman or mount -t csi names.
func placeOf(name string) place {
	namespace, claim := claimOf(name)
	return place{name: name, namespace: namespace, claim: claim, size: defaultSize}
}

// place returns the place of a request's volume. was is the volume as it is, if it exists: it stays where it is.
func (r Request) place(was *Volume) place {
	at := placeOf(r.Name)
	if at.frontEnd = r.FrontEnd; was != nil {
		at.was = &was.Options
	}
	if r.FrontEnd != Nomad {
		return at
	}
	at.namespace, at.claim, at.limit = NomadNamespace(r.Tenant), strings.ReplaceAll(r.Name, "_", "-"), r.LimitBytes
	if was != nil {
		at.namespace, at.claim, at.size = was.Options.Namespace, was.Options.Claim, was.Options.SizeBytes
	}
	switch {
	case at.limit > 0 && was != nil: // it does not shrink; an earlier version had no limits
		at.limit = max(at.limit, at.size)
	case at.limit > 0:
		at.size = min(at.size, at.limit)
	}
	return at
}

// existing returns a copy of the request's volume, or nil if there is none that can be read.
func (p *Provider) existing(req Request) *Volume {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rows[req.Name]; r != nil && r.unreadable == "" && r.v.FrontEnd == req.FrontEnd {
		return new(r.v)
	}
	return nil
}

// noClaim says that the claim of a volume does not exist, and which there are: for Nomad, of the same namespace.
func (p *Provider) noClaim(v Volume) string {
	var names []string
	for _, c := range p.c.Catalog.Claims() {
		if v.FrontEnd != Nomad || c.Namespace == v.Options.Namespace {
			names = append(names, c.Namespace+"/"+c.Name)
		}
	}
	hint := ""
	if v.FrontEnd == Nomad && v.Options.Namespace == NomadNamespace(v.Tenant) {
		hint = "; for a claim of another namespace add option namespace, which the operator allows with: " +
			setting(v.Tenant, allowNamespace, corev1.NamespaceDefault)
	}
	return fmt.Sprintf("option claim: claim %s/%s not found; there are: %s%s", v.Options.Namespace, v.Options.Claim,
		source.JoinNames(names), hint)
}
