package resolve_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A cephfs volume with a Secret goes to ceph-csi; one with its secret in a file of the node is mounted by csi-volmgr.
func TestCephFSBySecret(t *testing.T) {
	for _, secret := range []bool{false, true} {
		want := state.DriverName("cephfs.csi.ceph.com")
		pv := &corev1.CephFSPersistentVolumeSource{Monitors: []string{"mon"}, ReadOnly: true}
		inline := &corev1.CephFSVolumeSource{Monitors: []string{"mon"}, ReadOnly: true}
		if secret {
			pv.SecretRef = &corev1.SecretReference{Namespace: "ceph", Name: "s"}
			inline.SecretRef = &corev1.LocalObjectReference{Name: "s"}
		} else {
			want = kind.CephFS
		}
		w := ofKind(t, corev1.PersistentVolumeSource{CephFS: pv})
		w.config.Builtins = []state.DriverName{kind.CephFS}
		if got := w.only(t); got.Problem != "" || got.Spec.Driver != want || !secret && (!got.Mount.ReadOnly || got.Mount.FSGroup != nil) {
			t.Errorf("secret %v: got %+v, want %s", secret, got, want)
		}
		source(w, corev1.VolumeSource{CephFS: inline})
		if got := w.only(t); got.Spec.Driver != want && got.Problem == "" {
			t.Errorf("inline, secret %v: got %+v, want %s", secret, got, want)
		}
	}
}
