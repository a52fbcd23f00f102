package named

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Each name that Nomad allows for a namespace (^[a-zA-Z0-9-]{1,128}$) has a DNS label of its own, which is neither the
// node's default namespace nor another name's.
func TestEachNamespaceOfNomadHasItsOwn(t *testing.T) {
	of := map[string]string{}
	for _, tenant := range []string{
		"default", "bank", "Bank", "BANK", "bank-", "-bank", "--bank", "nomad-bank", "-", "--", "a", "A", "0", "prod-eu-1", "prod--eu",
		strings.Repeat("a", 57), strings.Repeat("a", 58), strings.Repeat("a", 128), strings.Repeat("a", 127) + "A",
		strings.TrimPrefix(NomadNamespace("Bank"), "nomad-"), NomadNamespace("Bank"),
	} {
		label := NomadNamespace(tenant)
		if bad := validation.IsDNS1123Label(label); len(bad) > 0 || !strings.HasPrefix(label, "nomad-") {
			t.Errorf("%s: %s: %v", tenant, label, bad)
		}
		if other, is := of[label]; is {
			t.Errorf("%s and %s are both %s", tenant, other, label)
		}
		of[label] = tenant
	}
	for tenant, want := range map[string]string{
		"": "nomad-default", "default": "nomad-default", "prod-eu-1": "nomad-prod-eu-1",
		"Bank": "nomad--m5weog6i3q6rgjathtyipqqkuajx7qbdjcar4qlcy6pfmauy7miq",
	} {
		if got := NomadNamespace(tenant); got != want { // a promise: volumes are there
			t.Errorf("%q: %s, want %s", tenant, got, want)
		}
	}
}

func TestRulesForNomad(t *testing.T) {
	for text, want := range map[string]NomadRule{
		"bank/namespace=shop": {"bank", "namespace", "shop"}, "*/driver=d.example": {"*", "driver", "d.example"}, "bank/owner": {"bank", "owner", "*"},
		"bank/namespace=*": {"bank", "namespace", "*"},
		"bank":             {}, "bank/": {}, "/owner": {}, "bank/namespace": {}, "bank/namespace=": {}, "bank/owner=x": {}, "bank/claim=x": {}, "": {},
	} {
		if got, ok := ParseNomadRule(text); ok != (want != NomadRule{}) || ok && got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
}

// owners records which owner each volume's directory was given to.
type owners struct {
	*host
	given map[string]state.Owner
}

func (o owners) Give(ctx context.Context, pod source.Key, container string, owner state.Owner) (string, error) {
	o.given[pod.Namespace+"/"+pod.Name] = owner
	return o.host.Give(ctx, pod, container, owner)
}

// claimOfTenant lists a claim in the namespace of Nomad's namespace evil.
func claimOfTenant(t *testing.T, c *source.Catalog) {
	t.Helper()
	err := c.Put("api", &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Namespace: "nomad-evil", Name: "shared"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The author of a Nomad volume, who is not the operator, gets its own storage and the claims of its own namespace. What
// reaches further is refused by the setting that allows it, and allowed by that.
func TestTheAuthorOfANomadVolume(t *testing.T) {
	for name, tc := range map[string]struct {
		options map[string]string
		setting string // that the refusal names; "" if it is not refused
	}{
		"its own":                 {map[string]string{"size": "1Gi", "uid": "999", "mode": "0700"}, ""},
		"its own, by name":        {map[string]string{"namespace": "nomad-evil"}, ""},
		"a claim of its own":      {map[string]string{"claim": "shared"}, ""},
		"another's claim":         {map[string]string{"namespace": "default", "claim": "theirs"}, "evil/namespace=default"},
		"a claim in another's":    {map[string]string{"namespace": "bank"}, "evil/namespace=bank"},
		"another tenant's":        {map[string]string{"namespace": "nomad-bank", "claim": "nomad-1"}, "evil/namespace=nomad-bank"},
		"a driver's volume":       {map[string]string{"driver": "d.example", "handle": "h"}, "evil/driver=d.example"},
		"with an attribute":       {map[string]string{"driver": "d.example", "handle": "h", "attribute.a": "b"}, "evil/driver=d.example"},
		"the owner of a claim":    {map[string]string{"claim": "shared", "uid": "0"}, "evil/owner"},
		"the group of a claim":    {map[string]string{"claim": "shared", "gid": "0"}, "evil/owner"},
		"the mode of a claim":     {map[string]string{"claim": "shared", "mode": "0777"}, "evil/owner"},
		"what is not there, here": {map[string]string{"claim": "theirs", "uid": "0"}, "evil/namespace=default"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			p, c, stop := h.start(t, "1")
			claimOfTenant(t, c)
			r := Request{Name: "nomad-7f3a", FrontEnd: Nomad, Tenant: "evil", Options: tc.options}
			err := p.Create(t.Context(), r)
			if tc.setting == "" {
				if v, getErr := p.Get(t.Context(), r.Name); err != nil || getErr != nil || !strings.HasPrefix(v.Claim, "nomad-evil/") {
					t.Errorf("%s: %v, %v, claim %s", name, err, getErr, v.Claim)
				}
				stop()
				return
			}
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "csi-volmgr run --nomad-allow="+tc.setting) {
				t.Errorf("%s: %v, want a refusal with %s", name, err, tc.setting)
			}
			for _, word := range []string{"default/theirs", "nomad-bank/"} {
				if err != nil && name == "what is not there, here" && strings.Contains(err.Error(), word) {
					t.Errorf("%s tells of another's claim: %v", name, err)
				}
			}
			if all, _ := p.List(t.Context()); len(all) != 0 || len(h.kv) != 0 {
				t.Errorf("%s: left behind: %+v", name, all)
			}
			stop()
			if name == "what is not there, here" || name == "another tenant's" {
				return
			}
			rule, _ := ParseNomadRule(tc.setting)
			p, c, stop = h.startWith(t, "1", func(c *Config) { c.NomadAllow = []NomadRule{rule} })
			defer stop()
			claimOfTenant(t, c)
			if err := p.Create(t.Context(), Request{Name: r.Name, FrontEnd: Nomad, Tenant: "other", Options: tc.options}); err == nil {
				t.Errorf("%s: another namespace of Nomad is allowed what evil is", name)
			}
			if err := p.Create(t.Context(), r); err != nil {
				t.Errorf("%s, with %s: %v", name, tc.setting, err)
			}
		})
	}
}

// A volume is of one namespace of Nomad: another neither makes, mounts nor removes it. The operator reaches it.
func TestAnotherNamespaceOfNomadDoesNotReachAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		r := Request{Name: "nomad-7f3a", FrontEnd: Nomad, Tenant: "bank", Options: map[string]string{"size": "1Gi"}}
		if err := p.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		r.Tenant = "evil"
		evil := p.For(Asker{FrontEnd: Nomad, Tenant: "evil"})
		for what, err := range map[string]error{
			"creates": p.Create(t.Context(), r),
			"names":   p.Create(t.Context(), Request{Name: r.Name, FrontEnd: Nomad, Tenant: "evil"}),
			"mounts":  second(evil.Mount(t.Context(), r.Name, "", 0)),
			"removes": second(evil.Remove(t.Context(), 0, 7, r.Name)),
		} {
			if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "another namespace of Nomad") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := p.For(Asker{FrontEnd: Nomad, Tenant: "bank"}).Remove(t.Context(), 0, 7, r.Name); err != nil {
			t.Error(err)
		}
	})
}

// A volume of an earlier version stays in its claim of the default namespace, with the options that are refused today, and
// is its tenant's once Nomad has named it; but it no longer gives away what was not made for it.
func TestNomadsVolumesOfAnEarlierVersion(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			h.kv["nomad-1"] = []byte(`{"name":"nomad-1","frontEnd":"nomad","options":{"namespace":"default","claim":"nomad-1","sizeBytes":1073741824,` +
				`"accessMode":"ReadWriteOnce","subdir":"_data","owner":{"uid":999}},"created":"2026-01-01T00:00:00Z","boot":"1","listed":true,"standing":true,"owns":true}`)
			h.kv["nomad-2"] = []byte(`{"name":"nomad-2","frontEnd":"nomad","options":{"namespace":"default","claim":"theirs","existing":true,"owner":{"uid":999}},` +
				`"created":"2026-01-01T00:00:00Z","boot":"1","standing":true,"owns":true}`)
			given := owners{h, map[string]state.Owner{}}
			p, _, stop := h.startWith(t, "1", func(c *Config) {
				if c.Mounts = given; allowed {
					c.NomadAllow = []NomadRule{{"default", "owner", Any}}
				}
			})
			defer stop()
			for name, options := range map[string]map[string]string{"nomad-1": {"uid": "999"}, "nomad-2": {"claim": "theirs", "uid": "999"}} {
				r := Request{Name: name, FrontEnd: Nomad, Tenant: "default", LimitBytes: 1 << 20, Options: options, Standing: true}
				for range 2 { // at each start of Nomad's client
					if err := p.Create(t.Context(), r); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if _, err := p.For(Asker{FrontEnd: Nomad, Tenant: "default"}).Mount(t.Context(), name, "", 0); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if v, err := p.Get(t.Context(), name); err != nil || !strings.HasPrefix(v.Claim, "default/") {
					t.Errorf("%s: claim %s, %v", name, v.Claim, err)
				}
				r.Tenant = "evil"
				if err := p.Create(t.Context(), r); !errors.Is(err, ErrConflict) {
					t.Errorf("%s, for another namespace: %v", name, err)
				}
			}
			if own, others := given.given["default/nomad.nomad-1"], given.given["default/nomad.nomad-2"]; own.IsZero() || others.IsZero() == allowed {
				t.Errorf("allowed %v: its own directory was given to %+v, that of a claim to %+v", allowed, own, others)
			}
		})
	}
}

// A volume gets at most its capacity_max, at first and when it grows, and its driver is told so.
func TestNomadsLargestCapacityHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		create := func(name, size string, limit int64) error {
			r := Request{Name: name, FrontEnd: Nomad, Tenant: "bank", LimitBytes: limit, Options: map[string]string{"class": "local"}}
			if size != "" {
				r.Options["size"] = size
			}
			return p.Create(t.Context(), r)
		}
		has := func(name, size, limit string) {
			t.Helper()
			claim, _ := c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "nomad-bank", Name: name}).(*corev1.PersistentVolumeClaim)
			if claim == nil || claim.Spec.Resources.Requests.Storage().String() != size || claim.Spec.Resources.Limits.Storage().String() != limit {
				t.Errorf("%s: %+v, want %s of at most %s", name, claim, size, limit)
			}
		}
		if err := create("nomad-1", "1Gi", 100<<20); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "found 1Gi, want at most 100Mi (capacity_max)") {
			t.Errorf("more than the most: %v", err)
		}
		if err := create("nomad-1", "", 100<<20); err != nil {
			t.Fatal(err)
		}
		has("nomad-1", "100Mi", "100Mi")
		if err := create("nomad-1", "200Mi", 100<<20); !errors.Is(err, ErrInvalid) {
			t.Errorf("it grows above: %v", err)
		}
		if err := create("nomad-1", "200Mi", 300<<20); err != nil {
			t.Error(err)
		}
		has("nomad-1", "200Mi", "300Mi")
		if err := create("nomad-1", "", 100<<20); err != nil { // a smaller one later takes nothing away
			t.Error(err)
		}
		has("nomad-1", "200Mi", "200Mi")
		if err := create("nomad-2", "", 0); err != nil {
			t.Error(err)
		}
		has("nomad-2", "1Gi", "0")
	})
}
