package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Release hands all volumes back to a kubelet: it writes the files by which one
// finds them, leaves what is mounted, and ends their management by deleting all
// records at once. Until that is done a daemon goes on as before. It is for a
// Node that is not run; with [ErrNotHandedOver] what it returns says why.
func (n *Node) Release(ctx context.Context, h Handover) (handover.Handback, error) {
	if err := n.noKubelet(h.Host); err != nil {
		return handover.Handback{}, err
	}
	journal, err := n.journalOfNow(ctx)
	if err != nil {
		return handover.Handback{}, err
	}
	found, err := disk.Read(ctx, n.cfg.Root, n.kernel)
	if err != nil {
		return handover.Handback{}, err
	}
	volumes := journal.Volumes()
	back := handover.Release(handover.Managed{
		Layout: n.layout, NodeName: n.cfg.Name, Journal: volumes, Mounts: found.Mounts, Devices: localDevices(volumes),
	})
	if against := handover.Against(back.Refusals, ""); against != "" {
		return back, fmt.Errorf("release the volumes below %s: %w: %s", n.cfg.Root, ErrNotHandedOver, against)
	}
	if !h.Yes || len(back.Records) == 0 {
		return back, nil
	}
	act := audit.Act{By: h.By, Verb: "release", Object: n.cfg.Root, Reason: h.Reason}
	return back, n.audit.Do(act, func() (string, error) {
		if err := n.release(context.WithoutCancel(ctx), journal, back); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d records", len(back.Records)), nil
	})
}

func (n *Node) release(ctx context.Context, journal *manager.Offline, back handover.Handback) error {
	if err := n.keeper().Write(ctx, back.Files); err != nil {
		return err
	}
	gone := map[state.VolumeID]*state.Volume{}
	for _, id := range back.Records {
		gone[id] = nil
	}
	if err := journal.Commit(ctx, gone); err != nil {
		return err
	}
	if err := n.keeper().RemoveDirs(ctx, back.Empty); err != nil {
		n.log.Warn("directories that stood for volumes stay", "err", err)
	}
	return nil
}

// localDevices are the paths of local volumes that are devices.
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
