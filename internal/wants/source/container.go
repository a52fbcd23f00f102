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

// Wholes returns how the containers of a pod mount its volumes, by the pod's names for them; none if the
// pod of that name has another uid or is gone.
func (c *Catalog) Wholes(pod Key, uid state.PodUID) map[string]resolve.Whole {
	c.mu.RLock()
	defer c.mu.RUnlock()
	object, ok := c.holder(pod).(*corev1.Pod)
	if !ok || state.PodUID(object.UID) != uid {
		return nil
	}
	return resolve.Wholes(object)
}
