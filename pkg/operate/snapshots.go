package operate

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// dataOf is the word by which csi-volmgr deletes objects of a kind that have data; "" for others.
func dataOf(kind string) string {
	switch kind {
	case resolve.KindClaim:
		return "pvc"
	case resolve.KindSnapshot:
		return "snapshot"
	}
	return ""
}

// Snapshots lists the snapshots of the sources and those that are kept, sorted.
func (v *Views) Snapshots() []server.SnapshotStatus {
	var out []server.SnapshotStatus
	for _, s := range v.c.Controller.Snapshots() {
		out = append(out, snapshotStatus(s))
	}
	return out
}

// snapshotStatus is a snapshot of the controller as the API shows it.
func snapshotStatus(c controller.SnapshotStatus) server.SnapshotStatus {
	return server.SnapshotStatus{
		Namespace: c.Snapshot.Namespace, Name: c.Snapshot.Name, Phase: string(c.Phase), Reason: c.Reason, Call: c.Call,
		Refused: c.Refused, Claim: c.Claim.Name, Class: c.Class, Driver: c.Driver, Content: c.Content, Handle: c.Handle,
		Created: c.Created, Ready: c.Ready, Consistency: string(c.Consistency), RestoreBytes: c.SizeBytes,
		DeletionPolicy: string(c.ReclaimPolicy),
		Retry:          server.RetryOf(c.Retry),
	}
}

// DeleteSnapshot deletes a snapshot and returns when the driver has said that it is gone
// (server.Objects). One whose deletionPolicy is Retain stays, unless d says that it may go;
// the note says where it is. It is refused while a claim is to be made of it; what is not
// refused is in the audit log.
func (o *Objects) DeleteSnapshot(ctx context.Context, by audit.By, d server.SnapshotDeletion) (note string, err error) {
	key := controller.Key{Namespace: d.Namespace, Name: d.Name}
	if err := o.waitKnown(ctx); err != nil {
		return "", fmt.Errorf("%w: it is not known yet who uses snapshot %s: %w", server.ErrConflict, key, err)
	}
	if claim := o.restores(key); claim != "" {
		return "", fmt.Errorf("%w: claim %s is to be made of snapshot %s: delete that first, or wait until it is bound",
			server.ErrConflict, claim, key)
	}
	act := audit.Act{By: by, Verb: "delete snapshot", Object: key.String(), Reason: d.Reason}
	if s, ok := o.c.Controller.Snapshot(key); ok && s.Handle != "" {
		act.Detail = "snapshot " + s.Handle + " of driver " + string(s.Driver)
	}
	err = o.c.Audit.Do(act, func() (string, error) {
		note, err = o.deleteSnapshot(ctx, key, d.Data)
		return note, err
	})
	return note, err
}

// restores names the claim that is to be made of the snapshot and has no volume; "" for none.
func (o *Objects) restores(key controller.Key) string {
	for _, c := range o.c.Controller.Claims() {
		if c.Volume == nil && c.Source == key {
			return c.Claim.String()
		}
	}
	return ""
}

func (o *Objects) deleteSnapshot(ctx context.Context, key controller.Key, data bool) (note string, err error) {
	object := source.Key{Kind: resolve.KindSnapshot, Namespace: key.Namespace, Name: key.Name}
	withdrawn := o.withdraw(ctx, object)
	if withdrawn != nil && !errors.Is(withdrawn, server.ErrNotFound) {
		return "", withdrawn
	}
	switch err := o.c.Controller.DeleteSnapshot(ctx, key, data); {
	case errors.Is(err, controller.ErrRetained):
		note = o.keptSnapshot(key)
		if withdrawn != nil {
			return "", fmt.Errorf("%w: snapshot %s is deleted already, and %s", server.ErrConflict, key, note)
		}
		return note, nil
	case errors.Is(err, controller.ErrNotFound):
		return "", withdrawn
	case errors.Is(err, controller.ErrListed), errors.Is(err, controller.ErrInUse):
		return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	case err != nil:
		return "", err
	}
	return "", o.waitSnapshotGone(ctx, key)
}

// keptSnapshot says where a snapshot is whose VolumeSnapshot was deleted, and what may be
// done with it.
func (o *Objects) keptSnapshot(key controller.Key) string {
	s, _ := o.c.Controller.Snapshot(key)
	if s.Handle == "" {
		return fmt.Sprintf("it may be in the making (driver %s), and it is kept, since its deletionPolicy is Retain: apply "+
			"the VolumeSnapshot again to have it, or delete it with: csi-volmgr delete snapshot %s -n %s --data", s.Driver,
			key.Name, key.Namespace)
	}
	return fmt.Sprintf("it is kept (driver %s, handle %s), since its deletionPolicy is Retain: apply the VolumeSnapshot "+
		"again to use it, or delete it with: csi-volmgr delete snapshot %s -n %s --data", s.Driver, s.Handle, key.Name,
		key.Namespace)
}

// waitSnapshotGone waits until the driver has said that the snapshot is gone.
func (o *Objects) waitSnapshotGone(ctx context.Context, key controller.Key) error {
	for {
		changed := o.c.Controller.Changed()
		s, ok := o.c.Controller.Snapshot(key)
		if !ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("snapshot %s is being deleted and not gone yet: %s: %w", key, s.Reason, context.Cause(ctx))
		}
	}
}
