//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim and volume are deleted, in both orders, while a pod has them. They stay until the
// pod is gone and the volume is unstaged, which the strict driver checks. Then the storage
// deletes or keeps the volume, as its reclaim policy says.
func TestScenariosOfReclaim(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-reclaim")
	const drop, keep = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	for name, tc := range map[string]struct {
		policy, then corev1.PersistentVolumeReclaimPolicy
		static       bool
		volumeFirst  bool
	}{
		// Scenarios: U-75.
		"made-delete": {policy: drop},
		// Scenarios: U-76.
		"made-delete-first": {policy: drop, volumeFirst: true},
		// Scenarios: U-77.
		"made-retain": {policy: keep},
		// Scenarios: U-78.
		"made-retain-first": {policy: keep, volumeFirst: true},
		// Scenarios: U-79.
		"static-delete": {policy: drop, static: true},
		// Scenarios: U-80.
		"static-delete-first": {policy: drop, static: true, volumeFirst: true},
		// Scenarios: U-81.
		"static-retain": {policy: keep, static: true},
		// Scenarios: U-82.
		"static-retain-first": {policy: keep, static: true, volumeFirst: true},
		// Scenarios: U-83.
		"retain-becomes-delete": {policy: keep, then: drop},
		// Scenarios: U-84.
		"delete-becomes-retain": {policy: drop, then: keep},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, claim := unattached("reclaim-"+name+".test", nil), "reclaim-"+name
			c.sidecars = []string{"csi-provisioner"}
			c.class = func(o *storagev1.StorageClass) { o.ReclaimPolicy = &tc.policy }
			s := begin(t, n, c)
			if tc.static {
				s.static(claim, func(pv *corev1.PersistentVolume) {
					pv.Spec.PersistentVolumeReclaimPolicy = tc.policy
					pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": s.name}
				})
				if tc.policy == drop {
					s.protected(claim)
				}
			} else {
				s.claim(claim, "1Gi", nil)
			}
			s.up(claim, fromClaim(claim))
			volume := s.volume(claim).ID
			policy := tc.policy
			if tc.then != "" {
				policy = tc.then
				_, err := control.client.CoreV1().PersistentVolumes().Patch(t.Context(), volume, types.MergePatchType,
					[]byte(`{"spec":{"persistentVolumeReclaimPolicy":"`+string(policy)+`"}}`), metav1.PatchOptions{})
				must(t, err)
			}
			s.reclaimed(claim, volume, policy, tc.volumeFirst)
			if kept := s.model().Volumes[volume] != nil; kept != (policy == keep) {
				t.Errorf("policy %s: the storage has the volume: %v", policy, kept)
			}
		})
	}
}

// protected waits until external-provisioner has put its finalizer on a volume that the
// test made. If the volume is deleted before that, the provisioner never sees the deletion,
// and the storage keeps the volume.
func (s *scene) protected(volume string) {
	s.t.Helper()
	s.n.eventually("the provisioner protects the volume", func() bool {
		pv, err := control.client.CoreV1().PersistentVolumes().Get(s.t.Context(), volume, metav1.GetOptions{})
		return err == nil && slices.Contains(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
	})
}

// reclaimed deletes claim and volume under their pod, ends the pod, and waits until both
// objects are gone.
func (s *scene) reclaimed(claim, volume string, policy corev1.PersistentVolumeReclaimPolicy, volumeFirst bool) {
	s.t.Helper()
	ctx, core := s.t.Context(), control.client.CoreV1()
	if volumeFirst {
		must(s.t, core.PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{}))
	}
	must(s.t, core.PersistentVolumeClaims("default").Delete(ctx, claim, metav1.DeleteOptions{}))
	file := filepath.Join(s.n.at(claim, "data"), "f")
	must(s.t, os.WriteFile(file, []byte("in use"), 0o600))
	s.end(claim)
	s.n.eventually("the claim goes", func() bool {
		_, err := core.PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if !volumeFirst && policy == corev1.PersistentVolumeReclaimRetain {
		s.n.eventually("the volume is released", func() bool {
			pv, err := core.PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
			return err == nil && pv.Status.Phase == corev1.VolumeReleased
		})
		must(s.t, core.PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{}))
	}
	s.n.eventually("the volume goes", func() bool {
		_, err := core.PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// end marks the pod's containers as ended, and deletes the pod once its volumes are
// unstaged. If no controller attaches a volume, the pod alone protects it.
func (s *scene) end(pod string) {
	s.t.Helper()
	_, err := control.client.CoreV1().Pods("default").Patch(s.t.Context(), pod, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	must(s.t, err)
	s.n.eventually("the volume is unstaged", func() bool { return len(s.model().Left()) == 0 })
	deletePod(s.t, pod)
}
