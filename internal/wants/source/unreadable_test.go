package source_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// An object that its provider cannot read is not absent: a pod that names it keeps what it has and says why, until the
// object is delivered again or deleted.
//
// Faults: A184.
func TestAnUnreadableObjectIsNotAbsent(t *testing.T) {
	hide := func(k source.Key) source.Update {
		return source.Update{Unreadable: map[source.Key]string{k: "torn; apply it again"}}
	}
	for name, c := range map[string]struct {
		hide, back string
		key        source.Key
	}{
		"a claim":  {claim("ca", "va"), claim("ca", "va"), key("PersistentVolumeClaim", "ca")},
		"a volume": {volume("va", "ca"), volume("va", "ca"), source.Key{Kind: resolve.KindVolume, Name: "va"}},
	} {
		for _, end := range []string{"applied again", "deleted"} {
			catalog, s := start()
			all := pod("a", "ca") + claim("ca", "va") + volume("va", "ca")
			put(t, catalog, "api", strings.Replace(all, c.hide, "", 1))
			if err := catalog.Apply("api", hide(c.key)); err != nil {
				t.Fatal(err)
			}
			if p := s.problem(t, "a"); !strings.Contains(p, "torn; apply it again") || !s.pods["a"].Volumes[0].Unread {
				t.Errorf("%s: problem %q", name, p)
			}
			if got := catalog.Unreadable(c.key.Kind, "Other"); !slices.Equal(got, []source.Key{c.key}) || catalog.Unread(c.key) == "" {
				t.Errorf("%s: unreadable %v", name, got)
			}
			catalog.Delete("file", c.key) // another provider's word is not about this object
			if catalog.Unread(c.key) == "" {
				t.Errorf("%s: another provider ended it", name)
			}
			if end == "deleted" {
				catalog.Delete("api", c.key)
			} else {
				put(t, catalog, "api", c.back)
			}
			if p := s.problem(t, "a"); strings.Contains(p, "torn") || catalog.Unread(c.key) != "" {
				t.Errorf("%s, %s: problem %q", name, end, p)
			}
		}
	}
}

// The file of a secret does not say which secret it was: any that is missing may be this one. So it is with
// ClusterTrustBundles, which are read as a list.
func TestAnObjectOfUnknownNameMayBeAnyOfItsKind(t *testing.T) {
	c, _ := start()
	err := c.Apply("api", source.Update{Unreadable: map[source.Key]string{
		{Kind: resolve.KindSecret, Name: "file"}: "torn", {Kind: resolve.KindTrustBundle, Name: "b"}: "torn",
	}})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[source.Key]bool{
		key(resolve.KindSecret, "any"): true, {Kind: resolve.KindTrustBundles}: true,
		key(resolve.KindConfigMap, "any"): false, {Kind: resolve.KindTrustBundle, Name: "c"}: false,
	} {
		if why := c.Unread(k); (why != "") != want {
			t.Errorf("%s: %q", k, why)
		}
	}
}

// A class that cannot be read may be the default, so no other is taken for it.
func TestAnUnreadableClassMayBeTheDefault(t *testing.T) {
	c, _ := start()
	put(t, c, "api", `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: d}`+
		"\n---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: any}}\n---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: named}, spec: {storageClassName: fast}}")
	of := source.Key{Kind: resolve.KindClass, Name: "fast"}
	if err := c.Apply("api", source.Update{Unreadable: map[source.Key]string{of: "torn; apply it again"}}); err != nil {
		t.Fatal(err)
	}
	for _, claim := range c.Claims() {
		if text, _ := c.MissingClass(claim); c.ClassOf(claim) != nil || !strings.Contains(text, "torn; apply it again") {
			t.Errorf("%s: class %v, %q", claim.Name, c.ClassOf(claim), text)
		}
	}
	c.Delete("api", of)
	if class := c.ClassOf(c.Claims()[0]); class == nil || class.Name != "slow" {
		t.Errorf("default: %v", class)
	}
}
