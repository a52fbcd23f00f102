package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/api"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/made"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/manifest"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Apply makes every object of a manifest wanted, durably, or none (server.Objects).
func (n *Node) Apply(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	objects, err := n.decode(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := n.checkSizes(objects); err != nil {
		return nil, err
	}
	results, err := n.api.Apply(ctx, objects)
	if errors.Is(err, api.ErrFixed) {
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
	n.show(ctx)
	return applied, nil
}

// Note has what was asked of the objects, and how that ended, in their log
// (server.Config). That it cannot be written is no reason to refuse a pod its volumes.
func (n *Node) Note(a audit.Act, result string, err error) {
	if logErr := n.notes.Note(a, result, err); logErr != nil {
		n.log.Warn("what was asked for is not in the audit log", "verb", a.Verb, "object", a.Object, "err", logErr)
	}
}

// bulky is the size in bytes from which manifests are decoded one at a time: the
// parser takes some hundred times as much for the worst of that size.
const bulky = 256 << 10

// decode returns the objects of a manifest, or ends with ctx.
func (n *Node) decode(ctx context.Context, m server.Manifest) ([]runtime.Object, error) {
	if len(m.Data) >= bulky {
		select {
		case n.decoding <- struct{}{}:
			defer func() { <-n.decoding }()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until another large manifest is decoded: %w", context.Cause(ctx))
		}
	}
	objects, err := manifest.DecodeContext(ctx, m.Name, m.Data)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	return objects, err
}

// show waits until the manager shows what it was told, so that whoever applied
// a change and then waits for it waits for the change. Where that is cut short,
// what was told holds all the same.
func (n *Node) show(ctx context.Context) { _ = n.manager.Settle(ctx) }

// changeWord is kubectl's word for a change.
func changeWord(c api.Change) string {
	if c == api.Changed {
		return "configured"
	}
	return string(c)
}

// Withdraw takes back what a manifest names, but for claims (server.Objects).
func (n *Node) Withdraw(ctx context.Context, m server.Manifest) ([]server.Applied, error) {
	objects, err := n.decode(ctx, m)
	if err != nil {
		return nil, err
	}
	defer n.show(ctx) // also what was taken back before one that cannot be
	var out []server.Applied
	for _, obj := range objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			return out, fmt.Errorf("%w: %w", server.ErrInvalid, err)
		}
		a := server.Applied{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Result: "deleted"}
		if key.Kind == resolve.KindClaim && n.isGone(key) {
			a.Result = "absent"
		} else if key.Kind == resolve.KindClaim {
			a.Result, a.Note = "kept", "data is deleted only by: csi-volmgr delete pvc "+key.Name+" -n "+key.Namespace
		} else if err := n.withdraw(ctx, key); errors.Is(err, server.ErrNotFound) {
			a.Result = "absent"
		} else if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}

// withdraw takes back one applied object.
func (n *Node) withdraw(ctx context.Context, key source.Key) error {
	select {
	case <-n.loaded: // before, nothing was applied as far as one can see
	case <-ctx.Done():
		return fmt.Errorf("delete %s: what was applied is not loaded yet: %w", key, context.Cause(ctx))
	}
	err := n.api.Delete(ctx, key)
	if !errors.Is(err, source.ErrNotFound) {
		return err
	}
	if n.catalog.Get(key) != nil {
		return fmt.Errorf("%w: %s is not from the API but from a manifest in %s: remove it there", server.ErrConflict, key,
			n.cfg.Manifests)
	}
	return fmt.Errorf("%w: %s not found among what was applied", server.ErrNotFound, key)
}

// DeletePod takes a pod back (server.Objects).
func (n *Node) DeletePod(ctx context.Context, namespace, name string) error {
	if err := n.withdraw(ctx, source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name}); err != nil {
		return err
	}
	n.show(ctx)
	return nil
}

// DeleteClaim deletes a claim, its volume and the data in it, and returns when
// the driver has said that they are gone (server.Objects). A volume whose
// reclaimPolicy is Retain stays, unless d says that its data may go; the note says
// where it is. It is refused while a pod names the claim or has the volume; what is
// not refused is in the audit log.
func (n *Node) DeleteClaim(ctx context.Context, by audit.By, d server.ClaimDeletion) (note string, err error) {
	key := controller.Key{Namespace: d.Namespace, Name: d.Name}
	if err := n.waitKnown(ctx); err != nil {
		return "", fmt.Errorf("%w: it is not known yet who uses claim %s: %w", server.ErrConflict, key, err)
	}
	act := audit.Act{By: by, Verb: "delete pvc", Object: key.String(), Reason: d.Reason}
	status, isMade := n.controller.Claim(key)
	if who := (usage{n}).Wanted(key); who != "" {
		return "", fmt.Errorf("%w: claim %s is named by %s: delete that first", server.ErrConflict, key, who)
	}
	if isMade && status.Volume != nil {
		if err := n.waitUnused(ctx, key, *status.Volume); err != nil {
			return "", err
		}
		act.Detail = "volume " + string(status.Volume.ID())
	}
	err = n.audit.Do(act, func() (string, error) {
		note, err = n.deleteClaim(ctx, key, d.Data)
		return note, err
	})
	return note, err
}

// deleteClaim deletes a claim that no pod uses, its volume and the data in it. Where
// the volume is to stay it says so, unless data says that it may go.
func (n *Node) deleteClaim(ctx context.Context, key controller.Key, data bool) (note string, err error) {
	keeps := !data && n.keeps(key)
	withdrawn := n.withdraw(ctx, made.CatalogKey(key))
	if withdrawn != nil && !errors.Is(withdrawn, server.ErrNotFound) {
		return "", withdrawn
	}
	if !keeps {
		// The controller is asked whatever it showed above: it may have begun to
		// make a volume since.
		err = n.controller.Delete(ctx, key, data)
	}
	switch {
	case keeps || errors.Is(err, controller.ErrRetained):
		note = n.kept(key)
		if withdrawn != nil {
			return "", fmt.Errorf("%w: claim %s is deleted already, and %s", server.ErrConflict, key, note)
		}
		return note, nil
	case errors.Is(err, controller.ErrNotFound):
		return "", withdrawn
	case errors.Is(err, controller.ErrListed), errors.Is(err, controller.ErrInUse):
		return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	case err != nil:
		return "", err
	}
	return "", n.waitDeleted(ctx, key)
}

// keeps reports whether the claim has a volume that an earlier version made, which did
// not note the reclaimPolicy, and its class says Retain.
func (n *Node) keeps(key controller.Key) bool {
	c, _ := n.controller.Claim(key)
	if c.Volume == nil || c.Volume.ReclaimPolicy != "" {
		return false
	}
	class, _ := n.catalog.Get(source.Key{Kind: resolve.KindClass, Name: c.Volume.Class}).(*storagev1.StorageClass)
	return made.Retains(class)
}

// kept says where the volume of a claim is that was deleted, and what may be done with it.
func (n *Node) kept(key controller.Key) string {
	c, _ := n.controller.Claim(key)
	if c.Volume == nil {
		return "its volume is kept"
	}
	return fmt.Sprintf("its volume %s (driver %s, handle %s) is kept with its data, since its reclaimPolicy is Retain: "+
		"apply the claim again to use it, or delete it with: csi-volmgr delete pvc %s -n %s --data", c.Volume.Name,
		c.Volume.Driver, c.Volume.Handle, key.Name, key.Namespace)
}

// startGrace is how long sources may take to speak before whoever needs them to
// is told that they have not, and before what waits for them goes on without:
// after a start they do so in moments, or only when somebody mends what they
// cannot read.
const startGrace = 5 * time.Second

// waitKnown waits until every source of pods has spoken and the manager shows it.
func (n *Node) waitKnown(ctx context.Context) error {
	grace := time.NewTimer(startGrace)
	defer grace.Stop()
	for {
		changed := n.changed.next()
		silent := n.Views().NotReady()
		if len(silent) == 0 {
			return n.manager.Settle(ctx)
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

// waitUnused waits while the volume is on its way off the node; no pod wants
// it any more. One that a pod wants is in use, and one that a pod has which its
// source still lists does not go before that pod is deleted.
func (n *Node) waitUnused(ctx context.Context, key controller.Key, volume controller.Volume) error {
	id := volume.ID()
	for {
		changed := n.manager.Changed()
		who := (usage{n}).InUse(id, volume.Name)
		if who == "" {
			return nil
		}
		v, _ := n.manager.Volume(id)
		unrecorded := v.Quarantined == "" && v.Volume.Clear() // then nothing of it is under way
		if unrecorded || len(v.Wanted) > 0 || v.Quarantined != "" {
			return fmt.Errorf("%w: the volume of claim %s is in use by %s", server.ErrConflict, key, who)
		} else if pod := n.listedUser(v.Volume); pod != "" {
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

// listedUser names a pod that has the volume, and whose source lists it with
// containers that may run; "" for none.
func (n *Node) listedUser(v state.Volume) string {
	listed := n.catalog.Wants()
	for _, uid := range slices.Sorted(maps.Keys(v.Mounts)) {
		if want, ok := listed[uid]; ok && !want.Stopped {
			return "pod " + want.Pod.Namespace + "/" + want.Pod.Name
		}
	}
	return ""
}

// waitDeleted waits until neither the controller nor the catalog shows anything
// of the claim: who looks next finds no volume either.
func (n *Node) waitDeleted(ctx context.Context, key controller.Key) error {
	for {
		changed := n.changed.next() // runClaims sends it after the catalog has what the controller shows
		c, ok := n.controller.Claim(key)
		if !ok && !n.showsVolume(key) {
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
func (n *Node) showsVolume(key controller.Key) bool {
	return slices.ContainsFunc(n.catalog.Volumes(), func(pv *corev1.PersistentVolume) bool {
		r := pv.Spec.ClaimRef
		return r != nil && r.Namespace == key.Namespace && r.Name == key.Name &&
			n.catalog.Provider(source.Key{Kind: resolve.KindVolume, Name: pv.Name}) == made.Name
	})
}
