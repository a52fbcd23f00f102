package manager

import (
	"context"
	"maps"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Offline is the journal of a node on which no Manager runs, for handing its volumes over.
type Offline struct {
	store  Store
	bootID string
	loaded state.Loaded
}

// OpenOffline reads the journal. bootID identifies this boot of the node.
func OpenOffline(ctx context.Context, s Store, bootID string) (*Offline, error) {
	loaded, err := s.Load(ctx)
	if err != nil {
		return nil, err
	}
	if loaded.BootID != bootID {
		for id, v := range loaded.Volumes {
			loaded.Volumes[id], _ = plan.Adopt(v, false, nil)
		}
	}
	return &Offline{store: s, bootID: bootID, loaded: loaded}, nil
}

// Volumes returns the records as a Manager that starts now would see them.
func (o *Offline) Volumes() map[state.VolumeID]state.Volume { return maps.Clone(o.loaded.Volumes) }

// Quarantined returns why records cannot be read, by volume.
func (o *Offline) Quarantined() map[state.VolumeID]string { return o.loaded.Quarantined }

// Commit makes all changes durable, or none; a nil value deletes a record. If the journal
// is from an earlier boot, Commit first writes the other records as that leaves them, and
// then the boot ID: else a Manager that starts would take the changes for mounts of the
// earlier boot, and thus not mounted.
func (o *Offline) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	if o.loaded.BootID != o.bootID {
		before := map[state.VolumeID]*state.Volume{}
		for id, v := range o.loaded.Volumes {
			before[id] = &v
		}
		if err := o.store.Commit(ctx, before); err != nil {
			return err
		}
		if err := o.store.SetBootID(ctx, o.bootID); err != nil {
			return err
		}
		o.loaded.BootID = o.bootID
	}
	return o.store.Commit(ctx, changes)
}
