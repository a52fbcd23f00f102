package operate

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// policyOf returns the reclaim policy in force of a volume that csi-volmgr made. An earlier version did not record
// it: the volume's class decides then, and "" means that the class cannot be read.
func policyOf(catalog *source.Catalog, v controller.Volume) controller.ReclaimPolicy {
	key := source.Key{Kind: resolve.KindClass, Name: v.Class}
	class, _ := catalog.Get(key).(*storagev1.StorageClass)
	switch {
	case v.ReclaimPolicy != "":
		return v.ReclaimPolicy
	case made.Retains(class):
		return controller.Retain
	case class == nil && catalog.Unread(key) != "":
		return ""
	}
	return controller.Delete
}

// listedPolicy returns the reclaim policy in force of a listed PersistentVolume. csi-volmgr deletes no volume that
// it did not make, whatever its PersistentVolume says; a cluster may.
func listedPolicy(catalog *source.Catalog, pv *corev1.PersistentVolume) controller.ReclaimPolicy {
	if catalog.Provider(source.Key{Kind: resolve.KindVolume, Name: pv.Name}) == source.Kube {
		return controller.ReclaimPolicy(pv.Spec.PersistentVolumeReclaimPolicy)
	}
	return controller.Retain
}

// policyToBe returns the reclaim policy that the volume of a claim would get; "" if nothing makes one.
func policyToBe(catalog *source.Catalog, claim *corev1.PersistentVolumeClaim) controller.ReclaimPolicy {
	key := source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}
	class := catalog.ClassOf(claim)
	if catalog.Provider(key) == named.Name && class != nil {
		class, _ = named.ClassOf(class, claim)
	}
	switch {
	case class == nil || class.Provisioner == resolve.NoProvisioner || claim.Spec.VolumeName != "":
		return ""
	case made.Retains(class):
		return controller.Retain
	}
	return controller.Delete
}

// SetReclaim sets the reclaim policy of the volume of a claim (server.Storage). The audit log has it.
func (o *Objects) SetReclaim(ctx context.Context, by audit.By, r server.Reclaim) (volume string, err error) {
	key := controller.Key{Namespace: r.Namespace, Name: r.Claim}
	policy := controller.ReclaimPolicy(r.Policy)
	if policy != controller.Delete && policy != controller.Retain {
		return "", fmt.Errorf("%w: policy: found %q, want Retain or Delete", server.ErrInvalid, r.Policy)
	}
	select {
	case <-o.c.Controller.Loaded():
	case <-ctx.Done():
		return "", fmt.Errorf("the volumes that csi-volmgr made are not loaded yet: %w", context.Cause(ctx))
	}
	c, _ := o.c.Controller.Claim(key)
	if c.Volume == nil {
		return "", o.noPolicy(key)
	}
	said, provider := o.c.Catalog.Listed(c.Volume.Name)
	if said != nil && len(resolve.CheckMade(made.PersistentVolume(*c.Volume), said)) == 0 {
		if says := said.Spec.PersistentVolumeReclaimPolicy; says != "" && string(says) != r.Policy {
			return "", fmt.Errorf("%w: PersistentVolume %s of source %s says %s, which is followed: change its "+
				"persistentVolumeReclaimPolicy there", server.ErrConflict, said.Name, provider, says)
		}
	}
	act := audit.Act{By: by, Verb: "volume set", Object: key.String(), Detail: "reclaim " + r.Policy}
	err = o.c.Audit.Do(act, func() (string, error) {
		return "", o.c.Controller.Reclaim(ctx, key, policy)
	})
	switch {
	case errors.Is(err, controller.ErrNotFound):
		return "", o.noPolicy(key)
	case errors.Is(err, controller.ErrUnreadable):
		return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	case err != nil:
		return "", err
	}
	return c.Volume.Name, o.waitPolicy(ctx, key, policy)
}

// noPolicy says why a claim has no volume whose reclaim policy can be set.
func (o *Objects) noPolicy(key controller.Key) error {
	claim, listed := o.c.Catalog.Get(made.CatalogKey(key)).(*corev1.PersistentVolumeClaim)
	c, known := o.c.Controller.Claim(key)
	switch {
	case !listed && !known:
		return fmt.Errorf("%w: claim %s", server.ErrNotFound, key)
	case listed && o.ofCluster(made.CatalogKey(key)):
		return fmt.Errorf("%w: claim %s is of the cluster: kubectl patch persistentvolume NAME -p "+
			`'{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}'`, server.ErrConflict, key)
	case c.Phase == controller.Deleting:
		return fmt.Errorf("%w: the volume of claim %s is being deleted", server.ErrConflict, key)
	case listed:
		if pv := o.c.Catalog.VolumeOf(claim); pv != nil && !known {
			return fmt.Errorf("%w: csi-volmgr did not make volume %s of claim %s and never deletes it", server.ErrConflict,
				pv.Name, key)
		}
	}
	return fmt.Errorf("%w: claim %s has no volume yet: its class says what becomes of the data", server.ErrConflict, key)
}

// waitPolicy waits until get pv and get pvc show the policy of a claim's volume.
func (o *Objects) waitPolicy(ctx context.Context, key controller.Key, policy controller.ReclaimPolicy) error {
	shown := func(v controller.Volume) bool {
		of := source.Key{Kind: resolve.KindVolume, Name: v.Name}
		pv, _ := o.c.Catalog.Get(of).(*corev1.PersistentVolume)
		return v.ReclaimPolicy == policy && (pv == nil || o.c.Catalog.Provider(of) != made.Name ||
			pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimPolicy(policy))
	}
	for {
		changed := o.c.Changed()
		if c, _ := o.c.Controller.Claim(key); c.Volume == nil || shown(*c.Volume) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the policy is stored and not shown yet: %w", context.Cause(ctx))
		}
	}
}
