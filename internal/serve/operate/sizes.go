package operate

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// checkSizes refuses claims that request a size of zero or less, or a smaller size than their volume was
// made for. It checks only objects that a person applies now: claims applied earlier stay readable.
func (o *Objects) checkSizes(objects []runtime.Object) error {
	var errs []error
	for _, obj := range objects {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		if !ok {
			continue
		}
		size, requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if !requested {
			continue // a claim that names its volume needs no size
		}
		key := controller.Key{Namespace: claim.Namespace, Name: claim.Name}
		status, _ := o.c.Controller.Claim(key)
		field := fmt.Sprintf("claim %s: spec.resources.requests.storage: found %s", key, size.String())
		switch v := status.Volume; {
		case size.Sign() <= 0:
			errs = append(errs, fmt.Errorf("%s, want more than 0", field))
		case v != nil && size.Value() < v.RequestedBytes:
			errs = append(errs, fmt.Errorf("%s, which is %d bytes; want at least %d, since its volume %s was made for that "+
				"and a volume cannot shrink",
				field, size.Value(), v.RequestedBytes, v.Name))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", server.ErrInvalid, errors.Join(errs...))
	}
	return nil
}

// ofCluster reports whether the catalog has the claim from the API server.
func (o *Objects) ofCluster(claim source.Key) bool { return o.c.Catalog.Provider(claim) == source.Kube }

// checkOwned refuses objects that the cluster's sidecars act on and csi-volmgr never does: they would
// wait forever.
func (o *Objects) checkOwned(objects []runtime.Object) error {
	for _, obj := range objects {
		if why := made.Owned(obj, o.c.Catalog.Claims, o.ofCluster); why != "" {
			key, _ := resolve.KeyOf(obj)
			return fmt.Errorf("%w: %s: %s", server.ErrConflict, key, why)
		}
	}
	return nil
}

// checkNames refuses a PersistentVolume of the name of a volume that csi-volmgr made, or is making or deleting,
// unless it is the same.
func (o *Objects) checkNames(ctx context.Context, objects []runtime.Object) error {
	var errs []error
	for _, obj := range objects {
		pv, ok := obj.(*corev1.PersistentVolume)
		if !ok {
			continue
		}
		select {
		case <-o.c.Catalog.Held():
		case <-ctx.Done():
			return fmt.Errorf("the volumes that csi-volmgr made are not loaded yet: %w", context.Cause(ctx))
		}
		if why := o.c.Catalog.CheckHold(pv); why != "" {
			key, _ := resolve.KeyOf(obj)
			errs = append(errs, fmt.Errorf("%w: %s: %s", server.ErrConflict, key, why))
		}
	}
	return errors.Join(errs...)
}

// waitFollowed waits until the made volumes of the names of objects have the reclaim policies that objects say.
func (o *Objects) waitFollowed(ctx context.Context, objects []runtime.Object) {
	for _, obj := range objects {
		pv, ok := obj.(*corev1.PersistentVolume)
		for ok && !o.c.Catalog.Follows(pv) {
			changed := o.c.Changed()
			if o.c.Catalog.Follows(pv) {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// isGone reports whether neither a source nor the controller knows the claim, snapshot or group snapshot,
// as after its deletion with its data. It is false while the controller reads its records.
func (o *Objects) isGone(key source.Key) bool {
	select {
	case <-o.c.Controller.Loaded():
	default:
		return false
	}
	_, known := o.c.Controller.Claim(made.ClaimKey(key))
	switch key.Kind {
	case resolve.KindSnapshot:
		_, known = o.c.Controller.Snapshot(made.ClaimKey(key))
	case resolve.KindGroupSnapshot:
		_, known = o.c.Controller.Group(made.ClaimKey(key))
	}
	return !known && o.c.Catalog.Get(key) == nil
}
