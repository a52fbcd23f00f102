package takeover

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Release hands all volumes back to a kubelet: it writes the files by which a kubelet finds them,
// leaves mounts in place, and deletes all records atomically. Until then a daemon could continue to
// manage them. The Node must not be running. With [ErrNotHandedOver], the returned Handback
// contains the reasons.
func (t *Transfer) Release(ctx context.Context, o Order) (handover.Handback, error) {
	if err := t.noKubelet(o.Host); err != nil {
		return handover.Handback{}, err
	}
	journal, err := t.openJournal(ctx)
	if err != nil {
		return handover.Handback{}, err
	}
	found, err := disk.Read(ctx, t.c.Layout.Root, t.c.Kernel)
	if err != nil {
		return handover.Handback{}, err
	}
	volumes := journal.Volumes()
	back := handover.Release(handover.Managed{
		Layout: t.c.Layout, NodeName: t.c.NodeName, Journal: volumes, Lost: t.c.Journal.Recovery().Why,
		Mounts: found.Mounts, Devices: localDevices(volumes),
	})
	if against := handover.Against(back.Refusals, ""); against != "" {
		return back, fmt.Errorf("release the volumes below %s: %w: %s", t.c.Layout.Root, ErrNotHandedOver, against)
	}
	if !o.Yes || len(back.Records) == 0 {
		return back, nil
	}
	act := audit.Act{By: o.By, Verb: "release", Object: t.c.Layout.Root, Reason: o.Reason}
	return back, t.c.Audit.Do(act, func() (string, error) {
		if err := t.release(context.WithoutCancel(ctx), journal, back); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d records", len(back.Records)), nil
	})
}

func (t *Transfer) release(ctx context.Context, journal *manager.Offline, back handover.Handback) error {
	if err := t.keeper().Write(ctx, back.Files); err != nil {
		return err
	}
	gone := map[state.VolumeID]*state.Volume{}
	for _, id := range back.Records {
		gone[id] = nil
	}
	if err := journal.Commit(ctx, gone); err != nil {
		return err
	}
	if err := t.keeper().RemoveDirs(ctx, back.Empty); err != nil {
		t.c.Logger.Warn("cannot remove directories of released volumes", "err", err)
	}
	return nil
}

// localDevices returns the paths of local volumes that are devices.
func localDevices(volumes map[state.VolumeID]state.Volume) map[string]bool {
	found := map[string]bool{}
	for _, v := range volumes {
		var source corev1.LocalVolumeSource
		if v.Spec.Driver == local.Kind && json.Unmarshal(v.Spec.Config, &source) == nil && disk.IsDevice(source.Path) {
			found[source.Path] = true
		}
	}
	return found
}
