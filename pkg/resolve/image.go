package resolve

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// image resolves the file system of an image, which is nobody's to change. What
// its source says the kind itself checks.
func (r *resolver) image(name string, src *corev1.ImageVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(Image, name, src)
	w.Mount.ReadOnly, w.Mount.FSGroup = true, nil
	return w, err
}
