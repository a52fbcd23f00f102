package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// deleteVerb returns the csi-volmgr delete subcommand for kinds whose objects have data; "" for other kinds.
func deleteVerb(kind string) string {
	switch kind {
	case resolve.KindClaim:
		return "pvc"
	case resolve.KindSnapshot:
		return "snapshot"
	case resolve.KindGroupSnapshot:
		return "groupsnapshot"
	}
	return ""
}

// Snapshots lists the snapshots of the sources and the retained ones, sorted.
func (v *Views) Snapshots() []server.SnapshotStatus {
	var out []server.SnapshotStatus
	for _, s := range v.c.Controller.Snapshots() {
		out = append(out, snapshotStatus(s))
	}
	return out
}

// snapshotStatus converts a snapshot of the controller to the API's form.
func snapshotStatus(c controller.SnapshotStatus) server.SnapshotStatus {
	return server.SnapshotStatus{
		Namespace: c.Snapshot.Namespace, Name: c.Snapshot.Name, Phase: string(c.Phase), Reason: c.Reason, Call: c.Call,
		Refused: c.Refused, Doubted: c.Doubted,
		Claim: c.Claim.Name, Class: c.Class, Driver: c.Driver, Content: c.Content, Handle: c.Handle,
		Created: c.Created, Ready: c.Ready, Consistency: string(c.Consistency), RestoreBytes: c.SizeBytes,
		DeletionPolicy: string(c.ReclaimPolicy), Group: c.Group.Name,
		Since: c.Since, Until: c.Until, Retry: server.RetryOf(c.Retry),
	}
}

// GroupSnapshots lists the group snapshots of the sources and the retained ones, sorted.
func (v *Views) GroupSnapshots() []server.GroupSnapshotStatus {
	var out []server.GroupSnapshotStatus
	for _, g := range v.c.Controller.Groups() {
		out = append(out, server.GroupSnapshotStatus{
			Namespace: g.Group.Namespace, Name: g.Group.Name, Phase: string(g.Phase), Reason: g.Reason, Call: g.Call,
			Refused: g.Refused, Doubted: g.Doubted, Claims: g.Claims, Snapshots: g.Snapshots, Class: g.Class, Driver: g.Driver,
			Content: g.Content, Handle: g.Handle, Created: g.Created, Ready: g.Ready, Consistency: string(g.Consistency),
			DeletionPolicy: string(g.ReclaimPolicy), Since: g.Since, Until: g.Until, Retry: server.RetryOf(g.Retry),
		})
	}
	return out
}

// DeleteSnapshot deletes a snapshot, or a group snapshot with its members, and returns when the driver
// has confirmed that it is gone (server.Objects). One with deletionPolicy Retain stays unless d.Data is
// set; the note says where it is. DeleteSnapshot refuses while a claim is waiting to be made of it. The
// audit log has every deletion that is not refused.
func (o *Objects) DeleteSnapshot(ctx context.Context, by audit.By, d server.SnapshotDeletion) (note string, err error) {
	cut := o.cut(controller.Key{Namespace: d.Namespace, Name: d.Name}, d.Group)
	if err := o.waitKnown(ctx); err != nil {
		return "", fmt.Errorf("%w: cannot tell yet who uses %s %s: %w", server.ErrConflict, cut.words, cut.key, err)
	}
	was, _ := cut.status()
	for _, name := range was.snapshots {
		if claim, is := o.restores(controller.Key{Namespace: d.Namespace, Name: name}); is {
			return "", fmt.Errorf("%w: a claim that is not bound yet restores snapshot %s/%s: wait until it is bound, or end "+
				"%s", server.ErrConflict, d.Namespace, name, o.origin(made.CatalogKey(claim)).blocks())
		}
	}
	act := audit.Act{By: by, Verb: "delete " + cut.verb, Object: cut.key.String(), Reason: d.Reason}
	if was.handle != "" {
		act.Detail = cut.words + " " + was.handle + " of driver " + was.driver
	}
	err = o.c.Audit.Do(act, func() (string, error) {
		note, err = o.deleteRetainable(ctx, cut, d.Data)
		return note, err
	})
	return note, err
}

// restores returns a claim without a volume that restores the snapshot.
func (o *Objects) restores(key controller.Key) (claim controller.Key, is bool) {
	for _, c := range o.c.Controller.Claims() {
		if c.Volume == nil && c.Source == key {
			return c.Claim, true
		}
	}
	return controller.Key{}, false
}

// cut is a snapshot or a group snapshot, and how the controller deletes it.
type cut struct {
	key controller.Key
	// kind is its object's kind; words is its name in texts, verb its name on the command line.
	kind, words, verb string
	delete            func(ctx context.Context, key controller.Key, retained bool) error
	status            func() (s snapshotState, known bool)
}

// snapshotState is the controller's status of a cut. snapshots are the group's members, or the snapshot
// itself.
type snapshotState struct {
	handle, driver, reason string
	snapshots              []string
}

func (o *Objects) cut(key controller.Key, group bool) cut {
	if group {
		return cut{
			key: key, kind: resolve.KindGroupSnapshot, words: "group snapshot", verb: "groupsnapshot",
			delete: o.c.Controller.DeleteGroup,
			status: func() (snapshotState, bool) {
				g, ok := o.c.Controller.Group(key)
				return snapshotState{
					handle: cmp.Or(g.Handle, g.Content), driver: string(g.Driver), reason: g.Reason, snapshots: g.Snapshots,
				}, ok
			},
		}
	}
	return cut{
		key: key, kind: resolve.KindSnapshot, words: "snapshot", verb: "snapshot", delete: o.c.Controller.DeleteSnapshot,
		status: func() (snapshotState, bool) {
			s, ok := o.c.Controller.Snapshot(key)
			return snapshotState{handle: s.Handle, driver: string(s.Driver), reason: s.Reason, snapshots: []string{key.Name}}, ok
		},
	}
}

func (o *Objects) deleteRetainable(ctx context.Context, c cut, data bool) (note string, err error) {
	withdrawn := o.withdraw(ctx, source.Key{Kind: c.kind, Namespace: c.key.Namespace, Name: c.key.Name})
	if withdrawn != nil && !errors.Is(withdrawn, server.ErrNotFound) {
		return "", withdrawn
	}
	if c.kind == resolve.KindSnapshot {
		note = o.sharedNote(c.key)
	}
	switch err := c.delete(ctx, c.key, data); {
	case errors.Is(err, controller.ErrRetained):
		note = c.kept()
		if withdrawn != nil {
			return "", fmt.Errorf("%w: %s %s is deleted already, and %s", server.ErrConflict, c.words, c.key, note)
		}
		return note, nil
	case errors.Is(err, controller.ErrNotFound):
		return "", withdrawn
	case errors.Is(err, controller.ErrGrouped):
		s, _ := o.c.Controller.Snapshot(c.key)
		return "", fmt.Errorf("%w: %w: csi-volmgr delete groupsnapshot %s -n %s", server.ErrConflict, err, s.Group.Name,
			c.key.Namespace)
	case errors.Is(err, controller.ErrListed), errors.Is(err, controller.ErrInUse):
		return "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	case err != nil:
		return "", err
	}
	return note, o.waitSnapshotGone(ctx, c)
}

// sharedNote says that the driver's snapshot outlives the record, because another record has it, or
// returns "".
func (o *Objects) sharedNote(key controller.Key) string {
	s, _ := o.c.Controller.Snapshot(key)
	if s.Handle == "" {
		return ""
	}
	for _, other := range o.c.Controller.Snapshots() {
		same := other.Driver == s.Driver && other.Handle == s.Handle && other.Content != "" && other.Snapshot != key
		if same && other.Phase != controller.Deleting {
			return fmt.Sprintf("only its record: snapshot %s has the same snapshot %s of driver %s, which is deleted with the "+
				"last record of it", other.Snapshot, s.Handle, s.Driver)
		}
	}
	return ""
}

// kept tells where the snapshot of a deleted object is, and how to use or delete it.
func (c cut) kept() string {
	s, _ := c.status()
	where, use := fmt.Sprintf("it is kept (driver %s, handle %s)", s.driver, s.handle), "use"
	if s.handle == "" {
		where, use = fmt.Sprintf("driver %s may still be making it, and it is kept", s.driver), "have"
	}
	return fmt.Sprintf("%s, since its deletionPolicy is Retain: apply the %s again to %s it, or delete it with: "+
		"csi-volmgr delete %s %s -n %s --data", where, c.kind, use, c.verb, c.key.Name, c.key.Namespace)
}

// waitSnapshotGone waits until the driver has confirmed that the snapshot is gone.
func (o *Objects) waitSnapshotGone(ctx context.Context, c cut) error {
	for {
		changed := o.c.Controller.Changed()
		s, ok := c.status()
		if !ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s %s is being deleted and not gone yet: %s: %w", c.words, c.key, s.reason,
				context.Cause(ctx))
		}
	}
}
