package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/ephemeral"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// DeleteClaim deletes a claim, its volume and its data, and returns when the driver has confirmed that
// they are gone (server.Objects). A volume with reclaimPolicy Retain stays unless d.Data is set; the note
// says where it is. DeleteClaim refuses while a pod names the claim or has the volume, or while a snapshot
// or a clone of it is to be made. The audit log has every deletion that is not refused.
func (o *Objects) DeleteClaim(ctx context.Context, by audit.By, d server.ClaimDeletion) (note string, err error) {
	return o.deleteOf(ctx, by, d, o.withdraw)
}

// deleteOf deletes a claim; withdraw withdraws it from its source.
func (o *Objects) deleteOf(ctx context.Context, by audit.By, d server.ClaimDeletion,
	withdraw func(context.Context, source.Key) error,
) (note string, err error) {
	key := controller.Key{Namespace: d.Namespace, Name: d.Name}
	if err := o.waitKnown(ctx); err != nil {
		return "", fmt.Errorf("%w: cannot tell yet who uses claim %s: %w", server.ErrConflict, key, err)
	}
	act := audit.Act{By: by, Verb: "delete pvc", Object: key.String(), Reason: d.Reason}
	status, isMade := o.c.Controller.Claim(key)
	if pod, wanted := o.c.Catalog.UserOf(key.Namespace, key.Name); wanted {
		return "", fmt.Errorf("%w: claim %s is named by %s", server.ErrConflict, key, o.origin(pod).blocks())
	}
	needed, err := o.c.Controller.Needed(ctx, key)
	if err != nil {
		return "", fmt.Errorf("%w: cannot tell yet what is to be made of claim %s: %w", server.ErrConflict, key, err)
	}
	if needed != "" {
		return "", fmt.Errorf("%w: %s is to be made of claim %s: delete it first, or wait until it is made",
			server.ErrConflict, needed, key)
	}
	if why := o.unknown(key, status); why != "" {
		return "", fmt.Errorf("%w: cannot tell whether claim %s may be deleted: %s", server.ErrConflict, key, why)
	}
	if isMade && status.Volume != nil {
		if err := o.checkOnly(key, *status.Volume, d.Data); err != nil {
			return "", err
		}
		if err := o.waitUnused(ctx, key, *status.Volume); err != nil {
			return "", err
		}
		act.Detail = "volume " + string(status.Volume.ID())
	}
	err = o.c.Audit.Do(act, func() (string, error) {
		note, err = o.deleteClaim(ctx, key, d.Data, withdraw)
		return note, err
	})
	return note, err
}

// checkOnly returns an error if the deletion of a claim would delete a volume that another
// PersistentVolume has.
func (o *Objects) checkOnly(key controller.Key, volume controller.Volume, data bool) error {
	if !data && (volume.ReclaimPolicy == controller.Retain || o.keeps(key)) {
		return nil
	}
	other, found := o.c.Catalog.Sharing(volume.ID(), volume.Name, made.CatalogKey(key))
	if !found {
		return nil
	}
	return fmt.Errorf("%w: the volume of claim %s, handle %s of driver %s, whose data goes with the claim, also "+
		"belongs to %s", server.ErrConflict, key, volume.Handle, volume.Driver, o.origin(other).blocks())
}

// unknown names an applied object that cannot be read and that decides whether the claim may be deleted: one
// that may be to be made of its volume, or the class of a volume whose record has no reclaimPolicy. It
// returns "" if there is none.
func (o *Objects) unknown(key controller.Key, c controller.ClaimStatus) string {
	for _, k := range o.c.Catalog.Unreadable(resolve.KindClaim, resolve.KindSnapshot, resolve.KindGroupSnapshot) {
		if k.Namespace == key.Namespace && k != made.CatalogKey(key) && !o.begun(k) {
			return fmt.Sprintf("%s may be to be made of it: %s", k, o.c.Catalog.Unread(k))
		}
	}
	if c.Volume == nil || c.Volume.ReclaimPolicy != "" {
		return ""
	}
	class := source.Key{Kind: resolve.KindClass, Name: c.Volume.Class}
	if why := o.c.Catalog.Unread(class); why != "" {
		return fmt.Sprintf("%s says whether its volume is kept: %s", class, why)
	}
	return ""
}

// begun reports whether a claim, snapshot or group snapshot has its storage, or may have: then nothing is to
// be made for it any longer.
func (o *Objects) begun(k source.Key) (known bool) {
	of := controller.Key{Namespace: k.Namespace, Name: k.Name}
	switch k.Kind {
	case resolve.KindClaim:
		_, known = o.c.Controller.Claim(of)
		return known || o.c.Catalog.Binding(k).Volume != ""
	case resolve.KindSnapshot:
		_, known = o.c.Controller.Snapshot(of)
	case resolve.KindGroupSnapshot:
		_, known = o.c.Controller.Group(of)
	}
	return known
}

// deleteClaim deletes a claim that no pod uses, its volume and its data. If the volume is to stay and
// data is not set, the note says so.
func (o *Objects) deleteClaim(ctx context.Context, key controller.Key, data bool,
	withdraw func(context.Context, source.Key) error,
) (note string, err error) {
	keeps, applied := !data && o.keeps(key), o.appliedVolume(key)
	withdrawn := withdraw(ctx, made.CatalogKey(key))
	if withdrawn != nil && !errors.Is(withdrawn, server.ErrNotFound) {
		return "", withdrawn
	}
	if !keeps {
		// Ask the controller regardless of what it showed above: it may have begun to make a volume
		// since.
		err = o.c.Controller.Delete(ctx, key, data)
	}
	switch {
	case keeps || errors.Is(err, controller.ErrRetained):
		note = o.kept(key)
		if withdrawn != nil {
			return "", fmt.Errorf("%w: claim %s is deleted already, and %s", server.ErrConflict, key, note)
		}
		return note, nil
	case errors.Is(err, controller.ErrNotFound):
		return o.release(ctx, key, withdrawn)
	case errors.Is(err, controller.ErrListed), errors.Is(err, controller.ErrInUse):
		return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	case err != nil:
		return "", err
	}
	if applied != "" { // it goes with its data
		err = o.c.API.Delete(ctx, source.Key{Kind: resolve.KindVolume, Name: applied})
	}
	if err != nil && !errors.Is(err, source.ErrNotFound) {
		return "", err
	}
	return "", o.waitDeleted(ctx, key)
}

// appliedVolume returns the name of an applied PersistentVolume that is the claim's volume itself, or "".
func (o *Objects) appliedVolume(key controller.Key) string {
	c, _ := o.c.Controller.Claim(key)
	if c.Volume == nil {
		return ""
	}
	pv, provider := o.c.Catalog.Listed(c.Volume.Name)
	if provider != api.Name || len(resolve.CheckMade(made.PersistentVolume(*c.Volume), pv)) > 0 {
		return ""
	}
	return pv.Name
}

// release ends a claim's binding to a volume that it did not create. withdrawn is the result of
// withdrawing the claim from its source.
func (o *Objects) release(ctx context.Context, key controller.Key, withdrawn error) (note string, err error) {
	volume, err := o.Bindings.Release(ctx, made.CatalogKey(key))
	switch {
	case errors.Is(err, binding.ErrNone):
		return "", withdrawn
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("its volume %s is kept with its data, and no other claim gets it while a source lists the volume: "+
		"apply the claim again to use it, or give it free with: csi-volmgr volume release %s", volume, volume), nil
}

// ReleaseVolume gives a PersistentVolume free that a claim had which is gone (server.Storage).
func (o *Objects) ReleaseVolume(ctx context.Context, by audit.By, r server.Release) (note string, err error) {
	if err := o.waitKnown(ctx); err != nil {
		return "", fmt.Errorf("%w: cannot tell yet who has volume %s: %w", server.ErrConflict, r.Volume, err)
	}
	act := audit.Act{By: by, Verb: "volume release", Object: r.Volume, Reason: r.Reason}
	err = o.c.Audit.Do(act, func() (string, error) {
		claim, err := o.Bindings.ReleaseVolume(ctx, r.Volume)
		switch {
		case errors.Is(err, binding.ErrOwned):
			return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
		case errors.Is(err, binding.ErrNoOwner):
			return "", fmt.Errorf("%w: %w", server.ErrNotFound, err)
		case err != nil:
			return "", err
		}
		note = "with its data; the next claim that asks for it gets it"
		if claim != "" {
			note = fmt.Sprintf("with the data of claim %s; the next claim that asks for it gets both", claim)
		}
		return note, nil
	})
	return note, err
}

// keeps reports whether the claim has a volume that an earlier version made without recording the
// reclaimPolicy, and its class says Retain.
func (o *Objects) keeps(key controller.Key) bool {
	c, _ := o.c.Controller.Claim(key)
	return c.Volume != nil && c.Volume.ReclaimPolicy == "" && policyOf(o.c.Catalog, *c.Volume) == controller.Retain
}

// kept tells where the volume of a deleted claim is, and how to use or delete it.
func (o *Objects) kept(key controller.Key) string {
	c, _ := o.c.Controller.Claim(key)
	where := "its volume, which may exist, is kept"
	if v := c.Volume; v != nil {
		where = fmt.Sprintf("its volume %s (driver %s, handle %s) is kept with its data", v.Name, v.Driver, v.Handle)
	}
	return fmt.Sprintf("%s, since its reclaimPolicy is Retain: apply the claim again to use it, or delete it with: "+
		"csi-volmgr delete pvc %s -n %s --data", where, key.Name, key.Namespace)
}

// waitKnown waits until every source of pods has spoken and the manager shows its pods.
func (o *Objects) waitKnown(ctx context.Context) error {
	grace := time.NewTimer(source.Grace)
	defer grace.Stop()
	for {
		changed := o.c.Changed()
		silent := o.c.Silent()
		if len(silent) == 0 {
			return o.c.Manager.Settle(ctx)
		}
		select {
		case <-changed:
		case <-grace.C:
			return errors.New(strings.Join(silent, ", "))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", strings.Join(silent, ", "), context.Cause(ctx))
		}
	}
}

// waitUnused waits while the volume, which no pod wants any longer, leaves the node. It fails at once if
// a pod wants the volume, or if a pod that has it is still listed: the volume stays until that pod is
// deleted.
func (o *Objects) waitUnused(ctx context.Context, key controller.Key, volume controller.Volume) error {
	id := volume.ID()
	for {
		changed := o.c.Manager.Changed()
		who := o.c.Usage.InUse(id, volume.Name)
		if who == "" {
			return nil
		}
		v, _ := o.c.Manager.Volume(id)
		unrecorded := v.Quarantined == "" && v.Volume.Clear() // then none of its steps are under way
		if unrecorded || len(v.Wanted) > 0 || v.Quarantined != "" {
			return fmt.Errorf("%w: the volume of claim %s is in use by %s", server.ErrConflict, key, who)
		} else if pod, listed := o.listedUser(v.Volume); listed {
			return fmt.Errorf("%w: the volume of claim %s is mounted for a pod that no longer names it and is still listed; "+
				"stop the containers of %s", server.ErrConflict, key, o.origin(pod).blocks())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: the volume of claim %s is still in use by %s: %w", server.ErrConflict, key, who,
				context.Cause(ctx))
		}
	}
}

// listedUser returns a pod that has the volume and that its source lists with containers that may run.
func (o *Objects) listedUser(v state.Volume) (pod source.Key, listed bool) {
	wants := o.c.Catalog.Wants()
	for _, uid := range slices.Sorted(maps.Keys(v.Mounts)) {
		if want, ok := wants[uid]; ok && !want.Stopped {
			return source.Key{Kind: resolve.KindPod, Namespace: want.Pod.Namespace, Name: want.Pod.Name}, true
		}
	}
	return source.Key{}, false
}

// waitDeleted waits until neither the controller nor the catalog shows the claim or its volume, so that
// the next reader sees neither.
func (o *Objects) waitDeleted(ctx context.Context, key controller.Key) error {
	for {
		changed := o.c.Changed() // runClaims signals it after the catalog has what the controller shows
		c, ok := o.c.Controller.Claim(key)
		anew := o.c.Catalog.Provider(made.CatalogKey(key)) == ephemeral.Name // made for a pod that waited for the end
		if anew || !ok && !o.showsVolume(key) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("claim %s is being deleted and not gone yet: %s: %w", key, made.Note(c), context.Cause(ctx))
		}
	}
}

// showsVolume reports whether the catalog shows a volume that the controller made for the claim.
func (o *Objects) showsVolume(key controller.Key) bool {
	return slices.ContainsFunc(o.c.Catalog.Volumes(), func(pv *corev1.PersistentVolume) bool {
		r := pv.Spec.ClaimRef
		return r != nil && r.Namespace == key.Namespace && r.Name == key.Name &&
			o.c.Catalog.Provider(source.Key{Kind: resolve.KindVolume, Name: pv.Name}) == made.Name
	})
}
