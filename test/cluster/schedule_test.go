//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A claim that waits for its first consumer gets its volume where the scheduler
// puts that pod, by the topology that the node's driver told; a later pod that may
// run anywhere is put there too, and has the data.
func TestTheSchedulerFollowsTheVolume(t *testing.T) {
	t.Parallel()
	storage(t)
	there, other := asNode(t, "zone-b"), asNode(t, "zone-a")
	for _, n := range []*node{there, other} {
		n.eventually("the node is labelled with its topology", func() bool {
			o, err := control.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
			return err == nil && o.Labels["topology."+driverName+"/node"] == n.name
		})
	}
	create(t, there.name, "placed")
	must(t, os.WriteFile(filepath.Join(there.mounted("placed"), "hello"), []byte("world"), 0o600))
	there.gone("placed")
	createPod(t, podWith("", "follows", fromClaim("placed")))
	there.hasFile(filepath.Join(there.at("follows", "data"), "hello"), "world")
	there.gone("follows")
	if len(other.mounts()) > 0 {
		t.Errorf("mounted on the other node: %v", other.mounts())
	}
}

// The test makes a volume larger as external-resizer does, and the node ends it as
// the kubelet does: the driver's call, the claim's capacity, no status left.
func TestAVolumeIsExpanded(t *testing.T) {
	t.Parallel()
	_, identity := role(t)
	yes := true
	a := newArray(t, "grow.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("growing")
	n := newNode(t, "grow", identity)
	a.serve(n)
	createPod(t, podWith(n.name, "grows", fromClaim("growing")))
	n.mounted("grows")
	ctx, core, size := t.Context(), control.client.CoreV1(), resource.MustParse("2Gi")
	claim, err := core.PersistentVolumeClaims("default").Get(ctx, "growing", metav1.GetOptions{})
	must(t, err)
	claim.Spec.Resources.Requests["storage"] = size
	claim, err = core.PersistentVolumeClaims("default").Update(ctx, claim, metav1.UpdateOptions{})
	must(t, err)
	pv, err := core.PersistentVolumes().Get(ctx, "growing", metav1.GetOptions{})
	must(t, err)
	pv.Spec.Capacity["storage"] = size
	_, err = core.PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{})
	must(t, err)
	claim.Status.AllocatedResources = corev1.ResourceList{"storage": size}
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": corev1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	_, err = core.PersistentVolumeClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	must(t, err)
	n.eventually("the claim has its size", func() bool {
		c, err := core.PersistentVolumeClaims("default").Get(ctx, "growing", metav1.GetOptions{})
		return err == nil && c.Status.Capacity.Storage().Equal(size) && len(c.Status.AllocatedResourceStatuses) == 0 && len(c.Status.Conditions) == 0
	})
	a.mu.Lock()
	if got := a.sizes["growing"]; got != size.Value() {
		t.Errorf("the driver was asked for %d bytes", got)
	}
	a.mu.Unlock()
	n.gone("grows")
	noRefusals(t, "system:serviceaccount:csi-volmgr:csi-volmgr")
}
