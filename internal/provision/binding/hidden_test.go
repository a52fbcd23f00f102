package binding

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// While a claim, a volume or a class cannot be read, no volume is chosen, and none that a deleted claim had
// becomes free: the volume may be the one, or may be another claim's.
func TestNothingIsChosenWhileAnObjectCannotBeRead(t *testing.T) {
	v := volume("v", "1Gi")
	w := inputs{
		here: anywhere, claims: []claimOf{of(claim("new", "1Gi")), of(claim("had", "1Gi"))}, volumes: []*corev1.PersistentVolume{v},
		choices: map[source.Key]choice{
			key("had"): {Claim: "default/had", Volume: "away", Storage: "s"}, key("gone"): {Claim: "default/gone", Volume: "away2", Released: true},
		},
	}
	choices, _ := next(w)
	if choices[key("new")].Volume != "v" || choices[key("gone")] != (choice{}) {
		t.Errorf("all can be read: %v", choices)
	}
	w.hidden = "volume away: torn; apply it again"
	choices, notes := next(w)
	if choices[key("new")] != (choice{}) || !choices[key("gone")].Released {
		t.Errorf("a volume cannot be read: %v", choices)
	}
	for _, name := range []string{"new", "had"} {
		if text := notes[key(name)].text; !strings.Contains(text, w.hidden) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// Neither a volume nor a claim that cannot be read gives away whose the volume is: a deleted claim's data stays its own,
// and a claim that has the volume mounted keeps it, also if no record says so.
func TestAnOwnerIsKnownWhileAnObjectCannotBeRead(t *testing.T) {
	r := newRig(t)
	r.put("file", volume("v", "1Gi"), named("bank", "w", "v"), volume("u", "1Gi"))
	r.step()
	r.c.Catalog.Delete("file", claimKey("bank/w"))
	r.step()
	gone := source.Key{Kind: resolve.KindVolume, Name: "v"}
	r.c.Catalog.Delete("file", gone)
	if err := r.c.Catalog.Apply("file", source.Update{Unreadable: map[source.Key]string{gone: "bits"}}); err != nil {
		t.Fatal(err)
	}
	r.step()
	r.put("file", volume("v", "1Gi"), named("evil", "w", "v"))
	r.step()
	r.expect(named("evil", "w", "v"), "", "claim bank/w has it")

	r.c.Volumes = func() []manager.VolumeStatus {
		return []manager.VolumeStatus{{Volume: state.Volume{
			Spec:   &state.Spec{Name: "u", Claim: "bank/u"},
			Mounts: map[state.PodUID]state.Mount{"p": {Fact: state.Fact{Phase: state.Present}}},
		}}}
	}
	r.Binder = New(r.c)
	if err := r.c.Catalog.Apply("file", source.Update{Unreadable: map[source.Key]string{claimKey("bank/u"): "bits"}}); err != nil {
		t.Fatal(err)
	}
	r.put("file", named("evil", "u", "u"))
	r.step()
	r.expect(named("evil", "u", "u"), "", "claim bank/u has it")
	r.put("file", named("bank", "u", "u"))
	r.step()
	r.expect(named("bank", "u", "u"), "u", "")
}
