package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Kept returns the data of a claim that no source lists (named.Shelf). It waits for every source to speak
// before it says that there is some.
func (o *Objects) Kept(ctx context.Context, claim source.Key) (k named.Kept, found bool, err error) {
	key := made.ClaimKey(claim)
	for _, wait := range []func(context.Context) error{func(context.Context) error { return nil }, o.waitKnown} {
		if err := wait(ctx); err != nil {
			return named.Kept{}, false, fmt.Errorf("cannot tell yet whether claim %s is listed: %w", key, err)
		}
		c, kept, err := o.c.Controller.Kept(ctx, key)
		if err != nil || !kept {
			return named.Kept{}, false, err
		}
		k = keptOf(c)
	}
	return k, true, nil
}

// Parked returns all data that was moved with a label (named.Shelf).
func (o *Objects) Parked(ctx context.Context) ([]named.Kept, error) {
	all, err := o.c.Controller.AllParked(ctx)
	var out []named.Kept
	for _, c := range all {
		out = append(out, keptOf(c))
	}
	return out, err
}

// keptOf converts the status of a claim that is not listed and has a volume.
func keptOf(c controller.ClaimStatus) named.Kept {
	v := *c.Volume
	k := named.Kept{
		Claim: made.CatalogKey(c.Claim), Volume: v.Name, Deletes: v.ReclaimPolicy == controller.Delete,
		Made: named.MadeOptions(v.Class, v.RequestedBytes),
	}
	if len(v.AccessModes) > 0 {
		k.Made.AccessMode = corev1.PersistentVolumeAccessMode(v.AccessModes[0])
	}
	if c.Parked != nil {
		k.Label = new(named.Label)
		if json.Unmarshal(c.Parked, k.Label) != nil { // of a later version: the data is all that counts
			k.Label = &named.Label{Volume: c.Claim.Name}
		}
	}
	return k
}

// Move gives the data of a claim to a claim of another name (named.Shelf). It returns when the catalog shows
// that the first has none: a claim of its name that is listed then does not find the data.
func (o *Objects) Move(ctx context.Context, from, to source.Key, label *named.Label) error {
	var note json.RawMessage
	if label != nil {
		var err error
		if note, err = json.Marshal(label); err != nil {
			return fmt.Errorf("move the data of claim %s: %w", from, err)
		}
	}
	for {
		changed := o.c.Controller.Changed()
		err := o.c.Controller.Move(ctx, made.ClaimKey(from), made.ClaimKey(to), note)
		switch {
		case errors.Is(err, controller.ErrBusy):
		case err != nil:
			return moveError(err)
		default:
			return o.waitMoved(ctx, made.ClaimKey(from))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// moveError wraps an error of the controller in the one that decides what named volumes do.
func moveError(err error) error {
	for is, ours := range map[error]error{
		controller.ErrNotFound: named.ErrNotFound, controller.ErrTaken: named.ErrTaken,
		controller.ErrListed: named.ErrConflict, controller.ErrInUse: named.ErrConflict,
		controller.ErrUnreadable: named.ErrConflict,
	} {
		if errors.Is(err, is) {
			return fmt.Errorf("%w: %w", ours, err)
		}
	}
	return err
}

// waitMoved waits until the catalog shows the volumes as the controller has them since a move.
func (o *Objects) waitMoved(ctx context.Context, from controller.Key) error {
	for {
		changed := o.c.Changed()
		if len(o.c.Silent()) == 0 && !o.showsVolume(from) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the volume of claim %s is moved and not shown yet: %w", from, context.Cause(ctx))
		}
	}
}

// KeptNamed implements server.Named.
func (n NamedAPI) KeptNamed(ctx context.Context) ([]server.NamedVolume, error) {
	views, err := n.ListParked(ctx)
	if err != nil {
		return nil, namedError(err)
	}
	all := make([]server.NamedVolume, 0, len(views))
	for _, v := range views {
		one := namedVolume(v)
		one.Removed, one.Was, one.Ends = v.Removed, v.Was, ""
		all = append(all, one)
	}
	return all, nil
}

// RestoreNamed implements server.Named.
func (n NamedAPI) RestoreNamed(ctx context.Context, name, as string) (server.NamedVolume, error) {
	v, err := n.Restore(ctx, name, as)
	return namedVolume(v), namedError(err)
}
