package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Drain is how far a node is being emptied of volumes. The zero value is not at all.
type Drain uint8

const (
	// DrainHold: nothing new is attached, staged or published. Existing mounts are removed
	// when their pod leaves.
	DrainHold Drain = iota + 1
	// DrainEmpty is the operator's word that no container of any pod runs on this
	// node. Every volume is unmounted, as if every pod had stopped, even if pods are
	// still listed or a source has not listed its pods yet (rule 5).
	DrainEmpty
)

// Why volumes wait while the node is drained.
const (
	reasonDrained = "the node is being drained: nothing new is mounted until csi-volmgr undrain"
	reasonEmptied = "the node is being emptied, because an operator said that its containers have stopped: nothing is " +
		"mounted until csi-volmgr undrain"
)

// Errors of Forget, to be matched with errors.Is.
var (
	// ErrUnknownVolume: there is no record of the volume.
	ErrUnknownVolume = errors.New("no record of the volume")
	// ErrInUse: a pod wants the volume, or a call for it is in flight.
	ErrInUse = errors.New("the volume is in use")
)

// SetDrain replaces how far the node is emptied.
func (m *Manager) SetDrain(d Drain) { m.post(func(l *loop) { l.setDrain(d) }) }

// SetHold keeps anything new from being attached, staged or published, for the reason why;
// "" ends that. Existing mounts are removed when their pod leaves.
func (m *Manager) SetHold(why string) {
	m.post(func(l *loop) {
		if l.gates.holdReason != why {
			l.gates.holdReason = why
			l.replanAll()
		}
	})
}

func (l *loop) setDrain(d Drain) {
	if l.gates.drain == d {
		return
	}
	l.gates.drain = d
	l.replanAll()
}

// allowedWish returns the merged wish for a volume, as far as a drain or a hold of the node allows.
func (l *loop) allowedWish(v *volume) state.Want {
	w := l.mergedWish(v)
	switch l.gates.drain {
	case DrainEmpty:
		return state.Want{}
	case DrainHold:
		w.Hold = cmp.Or(w.Hold, reasonDrained)
	}
	w.Hold = cmp.Or(w.Hold, l.gates.holdReason)
	return w
}

// holdEmptied notes why a wanted volume is not mounted while the node is being emptied.
func (l *loop) holdEmptied(v *volume, now time.Time) {
	if l.gates.drain == DrainEmpty && len(v.wants) > 0 {
		v.hold(plan.Held{Step: plan.Publish, Code: plan.Emptied, Reason: reasonEmptied}, now)
	}
}

// Forget deletes the record of a volume, durably, and makes no call: mounts of the volume
// stay on the host, without a record. While something is mounted at one of the paths in mounted,
// the volume counts as in use ([Manager.UsedBy]). Forget also ends the quarantine of a record that cannot
// be read. It fails with ErrInUse while a pod wants the volume or a call for it is in
// flight, and with ErrUnknownVolume if there is no record. When it returns,
// [Manager.Volume] does not show the volume.
func (m *Manager) Forget(ctx context.Context, id state.VolumeID, mounted ...string) error {
	err := m.do(ctx, func(l *loop) error { return l.forgetRecord(context.WithoutCancel(ctx), id, mounted) })
	if err != nil {
		return fmt.Errorf("forget volume %s: %w", id, err)
	}
	return nil
}

// forgetRecord deletes a volume's record durably, or returns why it must stay.
func (l *loop) forgetRecord(ctx context.Context, id state.VolumeID, mounted []string) error {
	v := l.volumes[id]
	switch {
	case v == nil || v.record == nil && v.quarantined == "":
		return ErrUnknownVolume
	case v.call != nil && v.call.op.Kind == plan.None:
		return fmt.Errorf("%w: its record is being compared with the kernel's mounts; try again", ErrInUse)
	case v.call != nil:
		return fmt.Errorf("%w: %s has been in flight since %s and has to end first", ErrInUse, v.call.op,
			v.call.since.Format("15:04:05"))
	case len(v.wants) > 0:
		return fmt.Errorf("%w: %d pods want it, so it would be mounted again", ErrInUse, len(v.wants))
	}
	if err := l.journal.write(ctx, batch{id: nil}); err != nil {
		return err
	}
	l.leave(v, mounted)
	v.quarantined = ""
	if v.record != nil {
		l.drop(v)
	} else {
		l.forget(v)
	}
	l.changed.push(id)
	l.log.Warn("record dropped on request; csi-volmgr no longer manages what it described", "volume", id)
	return nil
}
