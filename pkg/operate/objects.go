package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/binding"
	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/schedule"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/api"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/made"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/manifest"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Usage tells who uses claims and volumes.
type Usage interface {
	// Wanted names a pod of the sources that names the claim; "" if there is none.
	Wanted(claim controller.Key) string
	// InUse names what uses, or may use, the volume on this node; "" if nothing does.
	InUse(id state.VolumeID, name string) string
}

// ObjectsConfig is what Objects needs; every field but Manifests is required.
type ObjectsConfig struct {
	API        *api.Provider
	Catalog    *source.Catalog
	Controller *controller.Controller
	// Bindings gives claims volumes that already exist.
	Bindings *binding.Binder
	// Journal keeps the schedules of snapshots.
	Journal schedule.Journal
	Manager *manager.Manager
	Usage   Usage
	// Audit logs acts that may destroy data, and every other request in a file of its own.
	Audit *audit.Log
	// Manifests is the directory of manifests; "" if there is none.
	Manifests string
	// Loaded is closed once the objects applied earlier are loaded.
	Loaded <-chan struct{}
	// Silent lists the sources that have not spoken yet.
	Silent func() []string
	// Changed returns a channel that closes at the next change of claims, volumes or inputs.
	Changed func() <-chan struct{}
	Logger  *slog.Logger
}

// Objects applies and withdraws the objects of clients (server.Objects). Any goroutine may call its
// methods.
type Objects struct {
	Bindings  *binding.Binder
	Schedules *Schedules
	c         ObjectsConfig
	decoding  chan struct{} // holds a token while a large manifest is decoded
}

// NewObjects returns Objects.
func NewObjects(c ObjectsConfig) *Objects {
	o := &Objects{Bindings: c.Bindings, c: c, decoding: make(chan struct{}, 1)}
	o.Schedules = newSchedules(o, c.Journal)
	return o
}

// Apply makes every object of a manifest wanted, durably, or none (server.Objects). A check (m.Check)
// does not notice changes to fields that an earlier apply has fixed.
func (o *Objects) Apply(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	objects, err := o.decode(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := o.checkSizes(objects); err != nil {
		return nil, err
	}
	if err := o.checkOwned(objects); err != nil || m.Check {
		return nil, err
	}
	results, err := o.c.API.Apply(ctx, objects)
	if errors.Is(err, api.ErrImmutable) {
		return nil, fmt.Errorf("%w: %w", server.ErrConflict, err)
	}
	if err != nil {
		return nil, err
	}
	applied := make([]server.Applied, len(results))
	for i, r := range results {
		applied[i] = server.Applied{
			Kind: r.Key.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name,
			Result: changeWord(r.Change),
		}
	}
	o.show(ctx)
	return applied, nil
}

// Note writes a request and its result to the log of requests (server.Config). A failure to write is only
// logged: it is no reason to refuse a pod its volumes.
func (o *Objects) Note(a audit.Act, result string, err error) {
	if logErr := o.c.Audit.Note(a, result, err); logErr != nil {
		o.c.Logger.Warn("request is missing from the audit log", "verb", a.Verb, "object", a.Object, "err", logErr)
	}
}

// largeManifest is the size in bytes from which manifests are decoded one at a time: in the worst case the parser
// takes about a hundred times that memory.
const largeManifest = 256 << 10

// decode returns the objects of a manifest. It stops when ctx ends.
func (o *Objects) decode(ctx context.Context, m server.Manifest) ([]runtime.Object, error) {
	if len(m.Data) >= largeManifest {
		select {
		case o.decoding <- struct{}{}:
			defer func() { <-o.decoding }()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait while another large manifest is decoded: %w", context.Cause(ctx))
		}
	}
	objects, err := manifest.DecodeContext(ctx, m.Name, m.Data)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	return objects, err
}

// show waits until the manager shows the change, so that a client that applies a change and then waits
// does not see the state before it. If ctx ends first, the change is in effect all the same.
func (o *Objects) show(ctx context.Context) { _ = o.c.Manager.Settle(ctx) }

// changeWord is kubectl's word for a change.
func changeWord(c api.Change) string {
	if c == api.Changed {
		return "configured"
	}
	return string(c)
}

// Withdraw withdraws the objects that a manifest names, except claims and snapshots (server.Objects).
func (o *Objects) Withdraw(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	objects, err := o.decode(ctx, m)
	if err != nil {
		return nil, err
	}
	defer o.show(ctx) // also shows what was withdrawn before an error
	var out []server.Applied
	for _, obj := range objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			return out, fmt.Errorf("%w: %w", server.ErrInvalid, err)
		}
		a := server.Applied{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Result: "deleted"}
		if word := deleteVerb(key.Kind); word != "" && o.isGone(key) {
			a.Result = "absent"
		} else if word != "" {
			a.Result, a.Note = "kept", "data is deleted only by: csi-volmgr delete "+word+" "+key.Name+" -n "+key.Namespace
		} else if err := o.withdraw(ctx, key); errors.Is(err, server.ErrNotFound) {
			a.Result = "absent"
		} else if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

// withdraw withdraws one applied object.
func (o *Objects) withdraw(ctx context.Context, key source.Key) error {
	select {
	case <-o.c.Loaded: // until then, nothing seems to be applied
	case <-ctx.Done():
		return fmt.Errorf("delete %s: the applied objects are not loaded yet: %w", key, context.Cause(ctx))
	}
	err := o.c.API.Delete(ctx, key)
	if !errors.Is(err, source.ErrNotFound) {
		return err
	}
	if o.c.Catalog.Get(key) != nil {
		return fmt.Errorf("%w: %s is not from the API but from a manifest in %s: remove it there", server.ErrConflict, key,
			o.c.Manifests)
	}
	return fmt.Errorf("%w: %s not found among what was applied", server.ErrNotFound, key)
}

// DeletePod withdraws a pod (server.Objects).
func (o *Objects) DeletePod(ctx context.Context, namespace, name string) error {
	if err := o.withdraw(ctx, source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name}); err != nil {
		return err
	}
	o.show(ctx)
	return nil
}

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
	if who := o.c.Usage.Wanted(key); who != "" {
		return "", fmt.Errorf("%w: claim %s is named by %s: delete that first", server.ErrConflict, key, who)
	}
	needed, err := o.c.Controller.Needed(ctx, key)
	if err != nil {
		return "", fmt.Errorf("%w: cannot tell yet what is to be made of claim %s: %w", server.ErrConflict, key, err)
	}
	if needed != "" {
		return "", fmt.Errorf("%w: %s is to be made of claim %s: delete it first, or wait until it is made",
			server.ErrConflict, needed, key)
	}
	if isMade && status.Volume != nil {
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

// deleteClaim deletes a claim that no pod uses, its volume and its data. If the volume is to stay and
// data is not set, the note says so.
func (o *Objects) deleteClaim(ctx context.Context, key controller.Key, data bool,
	withdraw func(context.Context, source.Key) error,
) (note string, err error) {
	keeps := !data && o.keeps(key)
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
	return "", o.waitDeleted(ctx, key)
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
		"apply the claim again to use it", volume), nil
}

// keeps reports whether the claim has a volume that an earlier version made without recording the
// reclaimPolicy, and its class says Retain.
func (o *Objects) keeps(key controller.Key) bool {
	c, _ := o.c.Controller.Claim(key)
	if c.Volume == nil || c.Volume.ReclaimPolicy != "" {
		return false
	}
	class, _ := o.c.Catalog.Get(source.Key{Kind: resolve.KindClass, Name: c.Volume.Class}).(*storagev1.StorageClass)
	return made.Retains(class)
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
		} else if pod := o.listedUser(v.Volume); pod != "" {
			return fmt.Errorf("%w: the volume of claim %s is mounted for %s, which no longer names it and is still listed: "+
				"stop its containers and delete that first", server.ErrConflict, key, pod)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: the volume of claim %s is still in use by %s: %w", server.ErrConflict, key, who,
				context.Cause(ctx))
		}
	}
}

// listedUser names a pod that has the volume and that its source lists with containers that may run; ""
// if there is none.
func (o *Objects) listedUser(v state.Volume) string {
	listed := o.c.Catalog.Wants()
	for _, uid := range slices.Sorted(maps.Keys(v.Mounts)) {
		if want, ok := listed[uid]; ok && !want.Stopped {
			return "pod " + want.Pod.Namespace + "/" + want.Pod.Name
		}
	}
	return ""
}

// waitDeleted waits until neither the controller nor the catalog shows the claim or its volume, so that
// the next reader sees neither.
func (o *Objects) waitDeleted(ctx context.Context, key controller.Key) error {
	for {
		changed := o.c.Changed() // runClaims signals it after the catalog has what the controller shows
		c, ok := o.c.Controller.Claim(key)
		if !ok && !o.showsVolume(key) {
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
