package operate

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Pods mounts and unmounts the pods of a program that embeds csi-volmgr. Any goroutine may call its
// methods.
type Pods struct {
	API     *api.Provider
	Manager *manager.Manager
	Objects *Objects
}

// MountPod makes pod and the objects in beside (claims, volumes, configMaps...) wanted, durably, waits
// until every volume that its containers use is mounted, and returns the volumes by their names in the
// pod. It is for programs that embed csi-volmgr. If ctx ends first, the error is a *manager.WaitError and
// the pod stays wanted. All objects get the defaults that they would get in a manifest ([manifest.Default]):
// the namespace "default", and a UID that depends only on kind, namespace and name.
func (p Pods) MountPod(ctx context.Context, pod *corev1.Pod,
	beside ...runtime.Object,
) (map[string]manager.MountedVolume, error) {
	var all []runtime.Object
	for _, o := range beside {
		if o != nil { // Apply reports a nil object
			o = o.DeepCopyObject() // the provider keeps the objects
			manifest.Default(o)
		}
		all = append(all, o)
	}
	pod = pod.DeepCopy()
	manifest.Default(pod)
	all = append(all, pod)
	err := p.Objects.checkNamed(ctx, all...)
	if err == nil {
		err = p.Objects.checkUIDs([]runtime.Object{pod})
	}
	if err == nil {
		_, err = p.API.Apply(ctx, all)
	}
	if err != nil {
		return nil, fmt.Errorf("mount the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	uid := state.PodUID(pod.UID)
	if err := p.Manager.WaitForAttachAndMount(ctx, uid); err != nil {
		return nil, err
	}
	return p.Manager.GetMountedVolumesForPod(uid), nil
}

// UnmountPod reports that the pod's containers have ended for good, and waits until none of its volumes
// is mounted. Data of persistent volumes stays. UnmountPod may be called again if ctx ended first, and
// does nothing for an unknown pod.
func (p Pods) UnmountPod(ctx context.Context, pod *corev1.Pod) error {
	pod = &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy()}
	manifest.Default(pod)
	if err := p.Objects.DeletePod(ctx, pod.Namespace, pod.Name); err != nil && !errors.Is(err, server.ErrNotFound) {
		return fmt.Errorf("unmount the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return p.Manager.WaitForUnmount(ctx, state.PodUID(pod.UID))
}

// notApplied is the error for an object that was not applied. It says where a pod of that name is.
func (o *Objects) notApplied(key source.Key) error {
	var others []string
	for _, p := range o.c.Manager.Pods() {
		if key.Kind == resolve.KindPod && p.Listed && p.Pod.Name == key.Name {
			others = append(others, p.Pod.Namespace)
		}
	}
	if len(others) > 0 {
		return server.NotKnown("pod", key.Namespace, key.Name, others)
	}
	return fmt.Errorf("%w: %s not found among what was applied", server.ErrNotFound, key)
}
