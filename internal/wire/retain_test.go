package wire

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// An earlier version did not record the reclaimPolicy of a volume that it made: the volume's current class decides,
// and a missing class means no policy.
//
// Faults: A151.
func TestTheClassDecidesForAVolumeOfAnEarlierVersion(t *testing.T) {
	for policy, kept := range map[string]bool{"reclaimPolicy: Retain\n": true, "reclaimPolicy: Delete\n": false, "": false} {
		c := dirs(t)
		keepVolume(t, c, "")
		n, _ := start(t, c)
		apply(t, n, "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: slow}\nprovisioner: d.example\n"+policy+
			"---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], storageClassName: slow, resources: {requests: {storage: 1}}}\n")
		claimed(t, n, func(s controller.ClaimStatus, known bool) bool { return known && s.Volume != nil && !s.Volume.Released })
		for limit := within(t); len(n.Views().PersistentVolumes()) == 0 && limit.Err() == nil; { // listed a moment later
			runtime.Gosched()
		}
		want := map[bool]string{true: "Retain", false: "Delete"}[kept]
		claim, pv := n.Views().Claims()[0].ReclaimPolicy, n.Views().PersistentVolumes()[0].ReclaimPolicy
		if claim != want || pv != want {
			t.Errorf("policy %q: claim says %q, volume %q, want %s", policy, claim, pv, want)
		}
		if !kept {
			if err := n.controller.Delete(t.Context(), controller.Key{Namespace: "default", Name: "data"}, false); !errors.Is(err, controller.ErrListed) {
				t.Errorf("policy %q: %v", policy, err)
			}
			deleteBegins(t, n, server.ClaimDeletion{Namespace: "default", Name: "data"})
			continue
		}
		note, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "data"})
		if err != nil || !strings.Contains(note, "volume pvc-u (driver d.example, handle h-1) is kept") {
			t.Errorf("policy %q: %q, %v", policy, note, err)
		}
		claimed(t, n, func(s controller.ClaimStatus, _ bool) bool { return s.Phase == controller.Released })
	}
}
