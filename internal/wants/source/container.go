package source

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Container returns the UID of a pod and the mounts that one of its containers wants, as
// [resolve.Container] computes them.
func (c *Catalog) Container(
	pod Key, container string, can resolve.Runtime,
) (state.PodUID, []resolve.ContainerMount, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	object, ok := c.holder(pod).(*corev1.Pod)
	if !ok {
		return "", nil, fmt.Errorf("%s: %w", pod, ErrNotFound)
	}
	v := view{catalog: c, provider: c.effective(pod), seen: map[Key]bool{}}
	wants, err := resolve.Container(object, container, &v, c.config, can)
	return state.PodUID(object.UID), wants, err
}
