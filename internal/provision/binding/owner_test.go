package binding

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// every combination of what is recorded, chosen, named and mounted, of two claims.
func everyAsk(visit func(had resolve.Owner, a asks)) {
	records := []resolve.Owner{
		{},
		{Claim: "n/a", Storage: "s"},
		{Claim: "n/a", Storage: "s", Released: true},
		{Claim: "n/a", Storage: "other"},
		{Claim: "n/a", UID: "1", Storage: "s"},
		{Claim: "n/c", Storage: "s"},
		{Unreadable: "bits"},
	}
	var askers []asker
	for _, mounted := range []bool{false, true} {
		for _, uid := range []string{"", "1", "2"} {
			askers = append(askers, asker{"n/a", "", mounted}, asker{"n/b", "", mounted})
			askers[len(askers)-2].uid = types.UID(uid)
		}
	}
	for _, had := range records {
		for _, chosen := range []string{"", "n/a", "n/b", "n/c"} {
			for _, released := range []bool{false, true} {
				visit(had, asks{storage: "s", chosen: asker{claim: chosen}, released: released})
				for _, one := range askers {
					visit(had, asks{storage: "s", chosen: asker{claim: chosen}, released: released, named: []asker{one}})
					for _, two := range askers {
						if two.claim != one.claim {
							visit(had, asks{storage: "s", chosen: asker{claim: chosen}, released: released, named: []asker{one, two}})
						}
					}
				}
			}
		}
	}
}

// The claim that has or had a volume keeps it from every other; a volume goes only to a claim that asks for it, or had it;
// and the order in which claims are listed decides nothing.
func TestTheFirstKeepsAVolume(t *testing.T) {
	n := 0
	everyAsk(func(had resolve.Owner, a asks) {
		n++
		o, contended := ownerOf(had, a)
		at := fmt.Sprintf("had %+v, asks %+v: %+v, contended %v", had, a, o, contended)
		known := had.Unreadable != "" || had.Claim != "" && had.Storage == a.storage
		if known && (o.Claim != had.Claim || o.UID != had.UID || o.Unreadable != had.Unreadable || contended) {
			t.Error("taken from its owner: ", at)
		}
		if o.Claim != "" && !known {
			asked := o.Claim == a.chosen.claim || slices.ContainsFunc(a.named, func(k asker) bool { return k.claim == o.Claim })
			if !asked || o.Storage != a.storage {
				t.Error("given to a claim that did not ask: ", at)
			}
		}
		if contended && (len(a.named) < 2 || o != resolve.Owner{}) {
			t.Error("no contention: ", at)
		}
		if back, fight := ownerOf(had, asks{a.storage, a.chosen, a.released, reversed(a.named)}); back != o || fight != contended {
			t.Error("the order decides: ", at)
		}
		// What has an owner now has the same one when others come.
		if more := append(slices.Clone(a.named), asker{claim: "n/thief", mounted: true}); o.Claim != "" {
			if later, _ := ownerOf(o, asks{a.storage, asker{claim: "n/thief"}, false, more}); later.Claim != o.Claim || later.UID != o.UID {
				t.Error("a newcomer takes it: ", at)
			}
		}
	})
	if n < 4000 {
		t.Errorf("%d cases", n)
	}
}

func reversed(k []asker) []asker {
	k = slices.Clone(k)
	slices.Reverse(k)
	return k
}

// Without a record, as of an earlier version, what is chosen or mounted decides.
func TestAnOwnerComesFromChoicesAndMounts(t *testing.T) {
	a, b := asker{claim: "n/a"}, asker{claim: "n/b"}
	mounted := asker{claim: "n/b", mounted: true}
	for name, tc := range map[string]struct {
		asks
		want      string
		released  bool
		contended bool
	}{
		"none asks":                          {},
		"the only one that names it":         {asks: asks{named: []asker{a}}, want: "n/a"},
		"two name it":                        {asks: asks{named: []asker{a, b}}, contended: true},
		"two name it, one has it":            {asks: asks{named: []asker{a, mounted}}, want: "n/b"},
		"two have it":                        {asks: asks{named: []asker{{claim: "n/a", mounted: true}, mounted}}, contended: true},
		"chosen, and another names it":       {asks: asks{chosen: a, named: []asker{mounted}}, want: "n/a"},
		"chosen for a deleted claim":         {asks: asks{chosen: a, released: true}, want: "n/a", released: true},
		"and another has named it since":     {asks: asks{chosen: a, released: true, named: []asker{b}}, want: "n/b"},
		"and two have named it since":        {asks: asks{chosen: a, released: true, named: []asker{b, {claim: "n/c"}}}, contended: true},
		"chosen for the one that is deleted": {asks: asks{chosen: a, released: true, named: []asker{a}}, want: "n/a"},
	} {
		o, contended := ownerOf(resolve.Owner{}, tc.asks)
		if o.Claim != tc.want || o.Released != tc.released || contended != tc.contended {
			t.Errorf("%s: %+v, contended %v", name, o, contended)
		}
	}
}

// named is a claim that names a volume.
func named(namespace, name, volume string) *corev1.PersistentVolumeClaim {
	return claim(name, "1Gi", func(c *corev1.PersistentVolumeClaim) { c.Namespace, c.Spec.VolumeName = namespace, volume })
}

// has returns the volume that the catalog gives to a claim, and why it gives none.
func (r *rig) has(c *corev1.PersistentVolumeClaim) (string, error) {
	pv, _, err := r.c.Catalog.Bound(c)
	if err != nil {
		return "", err
	}
	return pv.Name, nil
}

func (r *rig) expect(c *corev1.PersistentVolumeClaim, volume, why string) {
	r.t.Helper()
	got, err := r.has(c)
	if got != volume || (why == "") != (err == nil) || why != "" && !strings.Contains(err.Error(), why) {
		r.t.Errorf("claim %s/%s has %q, %v; want %q, %q", c.Namespace, c.Name, got, err, volume, why)
	}
}

// A claim of another namespace does not get the volume that was chosen for a claim, nor after that claim was
// deleted; the claim itself gets it again, and another only when an operator releases the volume.
func TestAVolumeIsNotTakenByItsName(t *testing.T) {
	r := newRig(t)
	mine, thief := claim("data", "1Gi"), named("evil", "thief", "v")
	r.put("file", mine, volume("v", "1Gi"))
	r.step()
	r.put("api", thief) // the resolver asks at once, before the binder has looked
	r.expect(thief, "", "claim default/data has it")
	r.expect(mine, "v", "")
	r.step()
	r.expect(thief, "", "claim default/data has it")

	r.c.Catalog.Delete("file", key("data"))
	if v, err := r.Release(t.Context(), key("data")); v != "v" || err != nil {
		t.Fatalf("released %q, %v", v, err)
	}
	for range 2 { // and after a restart
		r.step()
		r.expect(thief, "", "found the data of claim default/data, which was deleted; to give it to another claim: csi-volmgr volume release v")
		r.Binder = New(r.c)
	}
	r.put("file", mine)
	r.step()
	r.expect(mine, "v", "")
	if _, err := r.ReleaseVolume(t.Context(), "v"); err == nil || !strings.Contains(err.Error(), "claim default/data has it; delete that first") {
		t.Errorf("released while its claim is there: %v", err)
	}
	r.c.Catalog.Delete("file", key("data"))
	if _, err := r.Release(t.Context(), key("data")); err != nil {
		t.Fatal(err)
	}
	if was, err := r.ReleaseVolume(t.Context(), "v"); was != "default/data" || err != nil {
		t.Errorf("released the volume of %q, %v", was, err)
	}
	r.step()
	r.expect(thief, "v", "")
	if _, err := r.ReleaseVolume(t.Context(), "nothing"); err == nil {
		t.Error("released a volume without an owner")
	}
}

// Of two claims that name one volume the first keeps it; of two that came at once none has it, which is a
// problem, until one of them goes.
func TestTheFirstToNameAVolumeKeepsIt(t *testing.T) {
	r := newRig(t)
	first, second := named("bank", "w", "v"), named("evil", "w", "v")
	r.put("file", volume("v", "1Gi"), first)
	r.step()
	r.put("file", second)
	r.step()
	r.expect(first, "v", "")
	r.expect(second, "", "claim bank/w has it")

	third, fourth := named("a", "x", "u"), named("b", "x", "u")
	r.put("file", volume("u", "1Gi"), third, fourth)
	r.step()
	r.expect(third, "", "all name it")
	if p := r.Problems(); len(p) != 1 || !strings.Contains(p[0].Text, "claims a/x, b/x all name it") {
		t.Errorf("problems: %+v", p)
	}
	r.c.Catalog.Delete("file", source.Key{Kind: resolve.KindClaim, Namespace: "b", Name: "x"})
	r.step()
	r.expect(third, "u", "")
	if p := r.Problems(); len(p) != 0 {
		t.Errorf("problems: %+v", p)
	}
}

// A claim of the same name with another UID, which a person gave it, is another claim.
func TestAnotherUIDIsAnotherClaim(t *testing.T) {
	r := newRig(t)
	with := func(uid string) *corev1.PersistentVolumeClaim {
		c := named("bank", "w", "v")
		c.UID = types.UID(uid)
		return c
	}
	r.put("file", volume("v", "1Gi"), with("1"))
	r.step()
	r.put("file", with("2"))
	r.step()
	r.expect(with("2"), "", "claim bank/w has it")
	r.put("file", with("1"))
	r.step()
	r.expect(with("1"), "v", "")
}

// An upgrade finds the owners by the choices and mounts of the earlier version, and goes back to it.
func TestOwnersOfAnEarlierVersion(t *testing.T) {
	r := newRig(t)
	r.put("file", volume("v", "1Gi"), volume("u", "1Gi"), claim("data", "1Gi"), named("bank", "w", "u"), named("evil", "w", "u"))
	r.c.Volumes = func() []manager.VolumeStatus {
		return []manager.VolumeStatus{{Volume: state.Volume{
			Spec:   &state.Spec{Name: "u", Claim: "evil/w"},
			Mounts: map[state.PodUID]state.Mount{"p": {Fact: state.Fact{Phase: state.Present}}},
		}}}
	}
	old := `{"version":1,"claim":"default/data","volume":"v","storage":"` + resolve.Storage(volume("v", "1Gi")) + `"}`
	memory := journal.NewMemory()
	if err := memory.CommitBucket(t.Context(), bucket, map[string][]byte{"default/data": []byte(old)}); err != nil {
		t.Fatal(err)
	}
	r.c.Journal = memory
	r.Binder = New(r.c)
	r.step()
	r.expect(claim("data", "1Gi"), "v", "")
	r.expect(named("evil", "w", "u"), "u", "")
	r.expect(named("bank", "w", "u"), "", "claim evil/w has it")
	values, err := memory.LoadBucket(t.Context(), bucket)
	if err != nil || len(values.Sound) != 1 || string(values.Sound["default/data"]) != old {
		t.Errorf("the earlier version finds %s, %v", values.Sound, err)
	}
}

// A record of an owner that cannot be read keeps the volume from every claim until an operator decides.
func TestAnUnreadableOwnerKeepsTheVolume(t *testing.T) {
	r := newRig(t)
	memory := journal.NewMemory()
	if err := memory.CommitBucket(t.Context(), ownersBucket, map[string][]byte{"v": []byte("{")}); err != nil {
		t.Fatal(err)
	}
	r.c.Journal = memory
	r.Binder = New(r.c)
	r.put("file", volume("v", "1Gi"), named("bank", "w", "v"), claim("data", "1Gi"))
	r.step()
	r.expect(named("bank", "w", "v"), "", "cannot be read (")
	r.wants("data", "")
	if _, err := r.ReleaseVolume(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.expect(named("bank", "w", "v"), "v", "")
}

// A volume that is mounted is not given free.
func TestAMountedVolumeIsNotReleased(t *testing.T) {
	r := newRig(t)
	mounted := state.Present
	r.c.Volumes = func() []manager.VolumeStatus {
		return []manager.VolumeStatus{{Volume: state.Volume{
			Spec: &state.Spec{Name: "v", Claim: "bank/w"}, Mounts: map[state.PodUID]state.Mount{"p": {Fact: state.Fact{Phase: mounted}}},
		}}}
	}
	r.Binder = New(r.c)
	r.put("file", volume("v", "1Gi"), named("bank", "w", "v"))
	r.step()
	r.c.Catalog.Delete("file", source.Key{Kind: resolve.KindClaim, Namespace: "bank", Name: "w"})
	if _, err := r.Release(t.Context(), source.Key{Kind: resolve.KindClaim, Namespace: "bank", Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReleaseVolume(t.Context(), "v"); err == nil || !strings.Contains(err.Error(), "it is mounted for claim bank/w") {
		t.Errorf("released: %v", err)
	}
	mounted = state.Absent
	if was, err := r.ReleaseVolume(t.Context(), "v"); was != "bank/w" || err != nil {
		t.Errorf("%q, %v", was, err)
	}
}
