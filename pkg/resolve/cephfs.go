package resolve

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// mountsCephFS reports whether a cephfs volume is mounted on this node: one with
// its secret in a file of the node, which ceph-csi cannot be told. One with a
// Secret is translated.
func (r *resolver) mountsCephFS(secret bool) bool { return !secret && r.has(CephFS) }

// cephFS resolves a directory of a Ceph file system. What its source says the
// kind itself checks.
func (r *resolver) cephFS(name string, src *corev1.CephFSVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(CephFS, name, src)
	w.Mount.ReadOnly, w.Mount.FSGroup = src.ReadOnly, nil
	return w, err
}
