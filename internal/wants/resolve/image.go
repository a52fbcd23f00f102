package resolve

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// podImage resolves the file system of an image, which is always read-only. The
// kind's driver checks the source.
func (r *resolver) podImage(v *corev1.Volume, _ string) (state.VolumeWant, error) {
	w, err := r.builtin(kind.Image, v.Name, v.Image)
	w.Mount.ReadOnly, w.Mount.FSGroup = true, nil
	return w, err
}
