package takeover

import (
	"context"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Adopt takes over what a kubelet left below the root, by committing records to the journal
// atomically. It mounts and unmounts nothing, and asks drivers only for their capabilities. The
// Node must not be running. With [ErrNotHandedOver], the returned Takeover contains the reasons.
func (t *Transfer) Adopt(ctx context.Context, o Order) (handover.Takeover, error) {
	if err := t.noKubelet(o.Host); err != nil {
		return handover.Takeover{}, err
	}
	pods, err := t.c.Pods(ctx)
	if err != nil {
		return handover.Takeover{}, err
	}
	journal, err := t.openJournal(ctx)
	if err != nil {
		return handover.Takeover{}, err
	}
	found, err := disk.Read(ctx, t.c.Layout.Root, t.c.Kernel)
	if err != nil {
		return handover.Takeover{}, err
	}
	take := handover.Adopt(handover.Input{
		Layout: t.c.Layout, Disk: found, Pods: pods, Journal: journal.Volumes(),
		Drivers: t.askDrivers(ctx),
	})
	if against := handover.Against(take.Refusals, o.Reason); against != "" {
		return take, fmt.Errorf("adopt the volumes below %s: %w: %s", t.c.Layout.Root, ErrNotHandedOver, against)
	}
	if !o.Yes {
		return take, nil
	}
	if err := t.c.ContainersRan(ctx); err != nil {
		return take, fmt.Errorf("adopt the volumes below %s: %w: %w", t.c.Layout.Root, ErrNotHandedOver, err)
	}
	if len(take.Records)+len(take.Empty) == 0 {
		return take, nil
	}
	act := audit.Act{
		By: o.By, Verb: "adopt", Object: t.c.Layout.Root, Reason: o.Reason, Detail: refusalTexts(take.Refusals),
	}
	return take, t.c.Audit.Do(act, func() (string, error) {
		ctx := context.WithoutCancel(ctx) // brief, and atomic
		if err := t.adopt(ctx, o.Host, journal, take); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d records", len(take.Records)), nil
	})
}

// adopt commits the records.
func (t *Transfer) adopt(ctx context.Context, host disk.Host, journal *manager.Offline, take handover.Takeover) error {
	if err := t.noKubelet(host); err != nil { // one may have started meanwhile
		return err
	}
	batch := map[state.VolumeID]*state.Volume{}
	for id, v := range take.Records {
		batch[id] = &v
	}
	if err := journal.Commit(ctx, batch); err != nil {
		return err
	}
	for _, dir := range take.Empty {
		if err := t.keeper().Empty(ctx, dir); err != nil {
			t.c.Logger.Warn("cannot remove an empty staging directory", "path", dir, "err", err)
		}
	}
	return nil
}

// refusalTexts lists the refusals that the reason overruled, for the audit log.
func refusalTexts(refusals []handover.Refusal) string {
	var all []string
	for _, r := range refusals {
		all = append(all, r.Path)
	}
	return strings.Join(all, " ")
}
