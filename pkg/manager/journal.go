package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// records tracks which records the store has, and which it does not have yet.
type records struct {
	store Store
	log   *slog.Logger
	// durable are the records that the store has, without those of a failed write, which
	// may have become durable.
	durable map[state.VolumeID]*state.Volume
	// unsaved are the volumes whose record differs from the store's, and since when.
	unsaved map[state.VolumeID]time.Time
	since   time.Time // unsaved records are written lazyWrite after this time
	err     error     // of the last write
	writes  uint64    // number of writes attempted
}

// batch is what one write makes durable; a nil record is deleted.
type batch = map[state.VolumeID]*state.Volume

// markUnsaved marks a volume's record as not saved yet.
func (r *records) markUnsaved(id state.VolumeID) {
	if _, already := r.unsaved[id]; already {
		return
	}
	now := time.Now()
	if len(r.unsaved) == 0 {
		r.since = now
	}
	r.unsaved[id] = now
}

// covers reports whether the store already has what must be durable before op's call.
func (r *records) covers(begun *state.Volume, op plan.Op) bool {
	if durable := r.durable[begun.ID]; durable != nil {
		return plan.Covers(*durable, *begun, op)
	}
	return plan.Covers(state.Volume{}, *begun, op)
}

// write makes a batch durable and remembers that it is.
func (r *records) write(ctx context.Context, b batch) error {
	if len(b) == 0 {
		return nil
	}
	r.writes++
	if err := r.store.Commit(ctx, b); err != nil {
		if r.err == nil {
			r.log.Error("journal cannot be written; no new call is made", "err", err)
		}
		r.err = err
		r.since = time.Now().Add(journalRetry)
		for id := range b {
			delete(r.durable, id)       // the record may have become durable nevertheless,
			r.unsaved[id] = time.Time{} // so it is written again
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	if r.err != nil {
		r.log.Info("journal can be written again")
		r.err = nil
	}
	r.markDurable(b)
	return nil
}

// writeRemovals writes only the part of a batch for which a full disk has room: intents to
// remove, and deletions of records. It reports whether they are durable.
func (r *records) writeRemovals(ctx context.Context, b batch, starts []*start) bool {
	ends := batch{}
	for id, r := range b {
		if r == nil {
			ends[id] = nil
		}
	}
	for _, s := range starts {
		if s.intent != nil && s.op.Kind.Removes() {
			ends[s.id] = s.intent
		}
	}
	if len(ends) == 0 || r.store.Commit(ctx, ends) != nil {
		return false
	}
	r.markDurable(ends)
	return true
}

// markDurable notes that a batch is durable.
func (r *records) markDurable(b batch) {
	for id, v := range b {
		delete(r.unsaved, id)
		if v == nil {
			delete(r.durable, id)
		} else {
			r.durable[id] = v
		}
	}
}

// commit makes the intents of starts durable. The same write includes intents of volumes
// that wait for a slot, and results that have waited long enough. It returns the starts
// that may be made: all of them, or, if the write fails, those whose intent was already
// durable.
func (l *loop) commit(ctx context.Context, starts []*start, now time.Time) []*start {
	b := batch{}
	for _, s := range starts {
		if s.intent != nil {
			b[s.id] = s.intent
		}
	}
	var announcements []*announcement
	if len(b) > 0 {
		announcements = l.takeAnnouncements(b)
	}
	// When the loop is idle, results are written at once: no call waits for the write, and a
	// mount that was reported is still reported after a crash, unless that interrupts the write.
	atRest := len(starts) == 0 && l.inFlight == 0 && l.journal.err == nil
	if len(l.journal.unsaved) > 0 && (atRest || now.Sub(l.journal.since) >= lazyWrite) {
		l.addResults(b, now)
	}
	for _, s := range starts {
		if _, late := b[s.id]; late && s.intent == nil {
			b[s.id] = &s.begun // the record from before the call must not replace the one that covers it
		}
	}
	err := l.journal.write(ctx, b)
	l.announced(announcements, err)
	if err == nil {
		return starts
	}
	ended := errors.Is(err, state.ErrFull) && l.journal.writeRemovals(ctx, b, starts)
	var may []*start
	for _, s := range starts {
		if s.intent == nil || ended && s.op.Kind.Removes() {
			may = append(may, s)
			continue
		}
		l.cancelStart(s, err, now)
	}
	return may
}

// cancelStart cancels a start whose intent could not be written.
func (l *loop) cancelStart(s *start, err error, now time.Time) {
	v := l.row(s.id)
	l.count(s.driver, s.op, -1)
	v.call = nil
	if s.op.Kind.Removes() {
		l.setRecord(s.intent) // it may be durable, and a removal is never turned back (rule 2)
	}
	v.hold(plan.Held{
		Step: s.op.Kind, Pod: s.op.Pod, Code: plan.Unsaved,
		Reason: "no call is made while the journal cannot be written: " + err.Error(), Until: now.Add(journalRetry),
	}, now)
	l.wakes.set(s.id, now.Add(journalRetry))
}

// addResults adds the unsaved records to b, except those of volumes with a call in flight.
// They are written together with the call's result, unless they are old; until then the
// journal has the intent of that call. So most volumes cost one result write in total, not
// one per call.
func (l *loop) addResults(b batch, now time.Time) {
	l.journal.since = now // for the volumes that stay unsaved
	for id, since := range l.journal.unsaved {
		if v := l.volumes[id]; v == nil || v.call == nil || now.Sub(since) >= resultWait {
			l.addRecord(b, id)
		}
	}
}

// unsaved returns all records that the journal does not have.
func (l *loop) unsaved() batch {
	b := batch{}
	for id := range l.journal.unsaved {
		l.addRecord(b, id)
	}
	return b
}

// addRecord adds a volume's record to b, unless b has an intent of it. If the volume has no
// record, b deletes it.
func (l *loop) addRecord(b batch, id state.VolumeID) {
	if _, intent := b[id]; intent {
		return
	}
	b[id] = nil
	if v := l.volumes[id]; v != nil {
		b[id] = v.record
	}
}
