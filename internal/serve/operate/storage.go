package operate

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Unowned lists volumes and snapshots in drivers' storage that neither a record of the controller or the
// loop nor a PersistentVolume names (server.Storage).
func (o *Objects) Unowned(ctx context.Context) (server.Unowned, error) {
	listings, err := o.c.Controller.Stored(ctx)
	if err != nil {
		return server.Unowned{}, err
	}
	return unowned(listings, o.named()), nil
}

// named returns the volumes that an object or the loop names, by driver and handle.
func (o *Objects) named() map[state.VolumeID]bool {
	named := map[state.VolumeID]bool{}
	for _, pv := range o.c.Catalog.Volumes() {
		if csi := pv.Spec.CSI; csi != nil {
			named[state.SharedID(state.DriverName(csi.Driver), csi.VolumeHandle)] = true
		}
	}
	for _, v := range o.c.Manager.Volumes() {
		if s := v.Volume.Spec; s != nil {
			named[state.SharedID(s.Driver, s.Handle)] = true
		}
	}
	return named
}

// unowned returns the listed volumes and snapshots that have no owner and are not in named.
func unowned(listings []controller.Listing, named map[state.VolumeID]bool) (out server.Unowned) {
	for _, l := range listings {
		if l.Unlisted != "" {
			out.Unlisted = append(out.Unlisted, server.Unlisted{Driver: l.Driver, Why: l.Unlisted})
		}
		for _, s := range l.Stored {
			one := server.Stored{
				Kind: "volume", Driver: l.Driver, Handle: s.Handle, Of: s.Of, SizeBytes: s.SizeBytes, Created: s.Created,
				MayBe: l.Unsure,
			}
			if s.Snapshot {
				one.Kind = "snapshot"
			}
			if s.Owner != "" || !s.Snapshot && named[state.SharedID(l.Driver, s.Handle)] {
				continue
			}
			out.Items = append(out.Items, one)
		}
	}
	return out
}
