package resolve

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func (r *resolver) podCephFS(v *corev1.Volume, _ string) (state.VolumeWant, error) {
	return r.cephFS(v.Name, v.CephFS)
}

func (r *resolver) volumeCephFS(pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error) {
	s := pv.Spec.CephFS
	w, err := r.cephFS(pv.Name, &corev1.CephFSVolumeSource{
		Monitors: s.Monitors, Path: s.Path, User: s.User, SecretFile: s.SecretFile, ReadOnly: s.ReadOnly,
	})
	return w, Fault{}, err
}

// cephFS resolves a directory of a Ceph file system. The kind's driver checks the source.
func (r *resolver) cephFS(name string, src *corev1.CephFSVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(kind.CephFS, name, src)
	w.Mount.ReadOnly, w.Mount.FSGroup = src.ReadOnly, nil
	return w, err
}
