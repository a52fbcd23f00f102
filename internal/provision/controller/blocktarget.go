package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// blockTarget is the driver to ask for blocks, and the snapshots to ask about.
type blockTarget struct {
	driver Driver
	// snapshot and base are CSI snapshot_ids; base is "" if only one snapshot is queried.
	snapshot, base string
	// secret is the secret of the snapshot's class (csi.storage.k8s.io/snapshotter-secret-name). If
	// there is a base, it is the later snapshot's, as in external-snapshot-metadata.
	secret state.SecretRef
}

func (t blockTarget) call() string {
	if t.base == "" {
		return "GetMetadataAllocated"
	}
	return "GetMetadataDelta"
}

// open requests the blocks from an offset on. It leaves max_results to the driver: gRPC bounds a
// message, and each is passed on at once.
func (t blockTarget) open(ctx context.Context, from int64, secret map[string]string,
) (recv func() (blockMessage, error), err error) {
	client := csi.NewSnapshotMetadataClient(t.driver.Conn)
	if t.base == "" {
		stream, err := client.GetMetadataAllocated(ctx, &csi.GetMetadataAllocatedRequest{
			SnapshotId: t.snapshot, StartingOffset: from, Secrets: secret,
		})
		if err != nil {
			return nil, err
		}
		return func() (blockMessage, error) { return stream.Recv() }, nil
	}
	stream, err := client.GetMetadataDelta(ctx, &csi.GetMetadataDeltaRequest{
		BaseSnapshotId: t.base, TargetSnapshotId: t.snapshot, StartingOffset: from, Secrets: secret,
	})
	if err != nil {
		return nil, err
	}
	return func() (blockMessage, error) { return stream.Recv() }, nil
}

// blockTarget returns the target for a query. It runs in Run's goroutine.
func (c *Controller) blockTarget(q BlockQuery) (blockTarget, error) {
	later, err := c.readySnapshot(q.Snapshot)
	if err != nil {
		return blockTarget{}, err
	}
	t := blockTarget{snapshot: later.Handle, secret: later.Spec.Secret}
	if q.Base != (Key{}) {
		base, err := c.readySnapshot(q.Base)
		if err == nil {
			err = checkPair(base, later)
		}
		if err != nil {
			return blockTarget{}, err
		}
		t.base = base.Handle
	}
	switch d := c.drivers[later.Spec.Driver]; {
	case d == nil:
		return blockTarget{}, fmt.Errorf("%w: %s", errAway, c.absence(later.Spec.Driver).Problem)
	case !d.known:
		return blockTarget{}, fmt.Errorf("%w: %s", errAway, d.problem())
	case !d.caps.Blocks:
		return blockTarget{}, fmt.Errorf("%w: driver %s does not have the capability SNAPSHOT_METADATA_SERVICE",
			ErrNoBlocks, d.Name)
	default:
		t.driver = d.Driver
	}
	return t, nil
}

// readySnapshot returns the record of a snapshot that is ready, even if no source lists it.
func (c *Controller) readySnapshot(key Key) (snapshotRecord, error) {
	e := c.snapshots.entries[key]
	var problem string
	switch {
	case e == nil || e.gone():
		return snapshotRecord{}, fmt.Errorf("%w: %s", ErrNoSnapshot, key)
	case e.unreadable != "":
		return snapshotRecord{}, fmt.Errorf("snapshot %s: %w: %s", key, ErrUnreadable, e.unreadable)
	case e.rec.Delete:
		problem = "it is being deleted"
	case e.mismatch() != "":
		problem = "it does not match: " + e.mismatch()
	case !e.rec.usable() && e.held.waits():
		problem = "it is not ready: " + e.held.reason
	case !e.rec.usable():
		problem = "it is not ready yet"
	default:
		return e.rec, nil
	}
	return snapshotRecord{}, fmt.Errorf("%w: snapshot %s: %s", ErrNoBlocks, key, problem)
}

// checkPair says why two snapshots are not an older and a later one of the same volume. No record
// knows the volume of a snapshot that a person named by its handle; there the driver decides.
func checkPair(base, later snapshotRecord) error {
	known := base.Spec.Volume != "" && later.Spec.Volume != ""
	switch {
	case base.Snapshot == later.Snapshot:
		return fmt.Errorf("%w: snapshot %s is given twice: expected an older one and a later one", ErrNoBlocks,
			later.Snapshot)
	case base.Spec.Driver != later.Spec.Driver:
		return fmt.Errorf("%w: snapshot %s is of driver %s, and snapshot %s of driver %s", ErrNoBlocks, base.Snapshot,
			base.Spec.Driver, later.Snapshot, later.Spec.Driver)
	case known && base.Spec.Volume != later.Spec.Volume:
		return fmt.Errorf("%w: snapshot %s is of volume %s, and snapshot %s of volume %s: expected two of one volume",
			ErrNoBlocks, base.Snapshot, base.Spec.Volume, later.Snapshot, later.Spec.Volume)
	case !base.Created.IsZero() && !later.Created.IsZero() && base.Created.After(later.Created):
		return fmt.Errorf("%w: snapshot %s was made after snapshot %s: expected the older one first", ErrNoBlocks,
			base.Snapshot, later.Snapshot)
	}
	return nil
}
