package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/ephemeral"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const ephemeralClasses = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: goes}
provisioner: local.csi-volmgr.dev
parameters: {type: directory}
reclaimPolicy: Delete
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: stays}
provisioner: local.csi-volmgr.dev
parameters: {type: directory}
reclaimPolicy: Retain
---
`

// withTemplate returns a pod with a generic ephemeral volume.
func withTemplate(pod, uid, volume, class string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, uid: %s}
spec:
  containers: [{name: c, volumeMounts: [{name: %s, mountPath: /v}]}]
  volumes: [{name: %[3]s, ephemeral: {volumeClaimTemplate: {metadata: {labels: {of: %[1]s}}, spec: {storageClassName: %[4]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}]
---
`, pod, uid, volume, class)
}

func withEphemeral(t *testing.T) (Config, *Node, func()) {
	t.Helper()
	c := dirs(t)
	c.LocalDriver = true
	n, stop := start(t, c)
	apply(t, n, ephemeralClasses)
	return c, n, stop
}

// volumeAt waits until the pod's volume is mounted, and returns where.
func volumeAt(t *testing.T, n *Node, uid, volume string) string {
	t.Helper()
	var path string
	waitFor(t, n, func() bool {
		p, _ := n.manager.Pod(state.PodUID(uid))
		m := n.manager.GetMountedVolumesForPod(state.PodUID(uid))[volume]
		path = m.HostPath
		return path != "" && p.Ready
	})
	return path
}

// blockedBy waits until the pod says that it waits for something with the text.
func blockedBy(t *testing.T, n *Node, uid, text string) {
	t.Helper()
	waitFor(t, n, func() bool {
		p, _ := n.manager.Pod(state.PodUID(uid))
		return len(p.Volumes) == 1 && strings.Contains(p.Volumes[0].BlockedBy, text)
	})
}

// claimIs waits until ok accepts the claim of that name, which is zero if none is listed or kept.
func claimIs(t *testing.T, n *Node, name string, ok func(server.ClaimStatus) bool) {
	t.Helper()
	ctx := within(t)
	for {
		changed := n.changed.next()
		var found server.ClaimStatus
		for _, c := range n.views.Claims() {
			if c.Name == name {
				found = c
			}
		}
		if ok(found) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("claim %s stays %+v", name, found)
		}
	}
}

func isGone(c server.ClaimStatus) bool { return c.Name == "" }

func deletePod(t *testing.T, n *Node, name string) {
	t.Helper()
	if err := n.DeletePod(within(t), "default", name); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%s has %v, %v; want nothing", dir, files, err)
	}
}

// ephemeralRows returns how many ephemeral claims the journal has.
func ephemeralRows(t *testing.T, n *Node) int {
	t.Helper()
	values, err := n.journal.LoadBucket(t.Context(), ephemeral.Name)
	if err != nil {
		t.Fatal(err)
	}
	return len(values.Sound)
}

// The claim of a template is made, named after pod and volume and owned by the pod, and goes with the pod and its data.
func TestTheClaimOfATemplateIsMadeAndGoesWithItsPod(t *testing.T) {
	_, n, _ := withEphemeral(t)
	apply(t, n, withTemplate("web", "u-1", "data", "goes"))
	write(t, volumeAt(t, n, "u-1", "data"))
	claimIs(t, n, "web-data", func(c server.ClaimStatus) bool { return c.Phase == "Bound" && c.Pod == "web" && c.Class == "goes" })
	_, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "web-data", Data: true})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "csi-volmgr delete pod web -n default") {
		t.Errorf("delete pvc: %v", err)
	}
	deletePod(t, n, "web")
	claimIs(t, n, "web-data", isGone)
	apply(t, n, withTemplate("web", "u-1", "data", "goes"))
	empty(t, volumeAt(t, n, "u-1", "data"))
	if got := ephemeralRows(t, n); got != 1 {
		t.Errorf("the journal has %d rows, want 1", got)
	}
}

// A pod that takes another's name under another UID gets a claim of its own, once the first one's is deleted.
func TestAPodOfTheSameNameBeginsEmpty(t *testing.T) {
	_, n, _ := withEphemeral(t)
	apply(t, n, withTemplate("web", "u-1", "data", "goes"))
	write(t, volumeAt(t, n, "u-1", "data"))
	apply(t, n, withTemplate("web", "u-2", "data", "goes"))
	empty(t, volumeAt(t, n, "u-2", "data"))
}

// A reclaimPolicy Retain keeps the data under a name of its own, and the next pod's volume begins empty.
func TestTheReclaimPolicyKeepsTheDataOfATemplate(t *testing.T) {
	_, n, _ := withEphemeral(t)
	apply(t, n, withTemplate("web", "u-1", "data", "stays"))
	write(t, volumeAt(t, n, "u-1", "data"))
	deletePod(t, n, "web")
	claimIs(t, n, "web-data", isGone)
	apply(t, n, withTemplate("web", "u-1", "data", "stays"))
	empty(t, volumeAt(t, n, "u-1", "data"))
	var kept int
	for _, c := range n.controller.Claims() {
		if strings.HasPrefix(c.Claim.Name, "web-data.removed-") && c.Phase == controller.Released {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("kept: %d of %+v", kept, n.controller.Claims())
	}
}

// Of two pods whose claims have one name, the first has it, and the other waits until it is gone.
func TestTwoPodsWhoseClaimsHaveOneName(t *testing.T) {
	_, n, _ := withEphemeral(t)
	apply(t, n, withTemplate("a", "u-1", "b-c", "goes"))
	write(t, volumeAt(t, n, "u-1", "b-c"))
	apply(t, n, withTemplate("a-b", "u-2", "c", "goes"))
	blockedBy(t, n, "u-2", "claim default/a-b-c: metadata.ownerReferences: found Pod a (uid u-1)")
	deletePod(t, n, "a")
	empty(t, volumeAt(t, n, "u-2", "c"))
	claimIs(t, n, "a-b-c", func(c server.ClaimStatus) bool { return c.Pod == "a-b" })
}

// A claim that the pod does not own keeps the pod waiting, and goes only when the operator deletes it.
func TestAForeignClaimIsNotTaken(t *testing.T) {
	_, n, _ := withEphemeral(t)
	apply(t, n, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: web-data}\nspec: {storageClassName: goes, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n---"+
		withTemplate("web", "u-1", "data", "goes"))
	blockedBy(t, n, "u-1", "metadata.ownerReferences: found no controller, want pod default/web")
	deletePod(t, n, "web")
	claimIs(t, n, "web-data", func(c server.ClaimStatus) bool { return c.Phase == "Bound" && c.Pod == "" })
	if _, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "web-data"}); err != nil {
		t.Fatal(err)
	}
	apply(t, n, withTemplate("web", "u-1", "data", "goes"))
	empty(t, volumeAt(t, n, "u-1", "data"))
}

// A claim that the operator wrote beside its pod, as earlier versions needed it, is used, and stays when the pod goes.
func TestAClaimThatTheOperatorWroteStays(t *testing.T) {
	c, n, stop := withEphemeral(t)
	apply(t, n, withTemplate("web", "u-1", "data", "goes")+`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: web-data, ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: u-1, controller: true}]}
spec: {storageClassName: goes, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`)
	write(t, volumeAt(t, n, "u-1", "data"))
	stop()
	n, _ = start(t, c)
	if path := volumeAt(t, n, "u-1", "data"); path == "" {
		t.Error("not mounted after a restart")
	}
	if got := ephemeralRows(t, n); got != 0 {
		t.Errorf("%d claims are made beside the operator's", got)
	}
	deletePod(t, n, "web")
	if _, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "web-data"}); err != nil {
		t.Errorf("the operator's claim is gone: %v", err)
	}
}

// What an earlier claim of the name has left is neither used nor deleted for a template.
func TestDataOfAnEarlierClaimIsNotATemplates(t *testing.T) {
	_, n, _ := withEphemeral(t)
	apply(t, n, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: web-data}\nspec: {storageClassName: stays, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n")
	claimIs(t, n, "web-data", func(c server.ClaimStatus) bool { return c.Phase == "Bound" })
	if _, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "web-data"}); err != nil {
		t.Fatal(err)
	}
	apply(t, n, withTemplate("web", "u-1", "data", "goes"))
	blockedBy(t, n, "u-1", "an earlier claim of that name has left volume pvc-")
	if _, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "web-data", Data: true}); err != nil {
		t.Fatal(err)
	}
	volumeAt(t, n, "u-1", "data")
}

// A pod that another pod shares its claim with goes; the claim goes once the other does not name it either.
func TestAClaimStaysWhileAnotherPodNamesIt(t *testing.T) {
	const reader = `apiVersion: v1
kind: Pod
metadata: {name: reader, uid: u-2}
spec:
  containers: [{name: c, volumeMounts: [{name: d, mountPath: /v}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: web-data}}]
`
	_, n, _ := withEphemeral(t)
	apply(t, n, withTemplate("web", "u-1", "data", "goes")+reader)
	write(t, volumeAt(t, n, "u-1", "data"))
	path := volumeAt(t, n, "u-2", "d")
	deletePod(t, n, "web")
	if err := n.manager.WaitForUnmount(within(t), "u-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "f")); err != nil {
		t.Errorf("the other pod's data: %v", err)
	}
	apply(t, n, strings.NewReplacer("reader", "late", "u-2", "u-3").Replace(reader))
	volumeAt(t, n, "u-3", "d")
	deletePod(t, n, "reader")
	deletePod(t, n, "late")
	claimIs(t, n, "web-data", isGone)
}

// A manifest's pod keeps its claim over a restart; one that is removed while no daemon runs takes its claim with it.
func TestAClaimGoesThoughItsPodWentWhileNoDaemonRan(t *testing.T) {
	c := dirs(t)
	c.LocalDriver, c.Manifests = true, t.TempDir()
	file := filepath.Join(c.Manifests, "web.yaml")
	for name, text := range map[string]string{"classes.yaml": ephemeralClasses, "web.yaml": withTemplate("web", "u-1", "data", "goes")} {
		if err := os.WriteFile(filepath.Join(c.Manifests, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, stop := start(t, c)
	write(t, volumeAt(t, n, "u-1", "data"))
	stop()
	n, stop = start(t, c)
	if _, err := os.Stat(filepath.Join(volumeAt(t, n, "u-1", "data"), "f")); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	stop()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n, _ = start(t, c)
	claimIs(t, n, "web-data", isGone)
	if left := n.controller.Claims(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}
