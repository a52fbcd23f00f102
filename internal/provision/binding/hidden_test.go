package binding

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
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
