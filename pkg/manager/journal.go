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

// journal is what the store has of the records, and what it does not have yet.
type journal struct {
	store Store
	log   *slog.Logger
	// durable are the records that it has. What may have become durable by a write that
	// failed is not among them.
	durable map[state.VolumeID]*state.Volume
	// unsaved are the volumes whose row's record is another one, and since when.
	unsaved map[state.VolumeID]time.Time
	since   time.Time // when the first of them came
	err     error     // of the last write
	writes  uint64    // that were tried
}

// batch is what one write makes durable; a nil record is deleted.
type batch = map[state.VolumeID]*state.Volume

// later takes in that a row's record is another one than the store's.
func (j *journal) later(id state.VolumeID) {
	if _, already := j.unsaved[id]; already {
		return
	}
	now := time.Now()
	if len(j.unsaved) == 0 {
		j.since = now
	}
	j.unsaved[id] = now
}

// covers reports whether the store says already what it has to before op's call.
func (j *journal) covers(begun *state.Volume, op plan.Op) bool {
	if durable := j.durable[begun.ID]; durable != nil {
		return plan.Covers(*durable, *begun, op)
	}
	return plan.Covers(state.Volume{}, *begun, op)
}

// write makes a batch durable and remembers that it is.
func (j *journal) write(ctx context.Context, b batch) error {
	if len(b) == 0 {
		return nil
	}
	j.writes++
	if err := j.store.Commit(ctx, b); err != nil {
		if j.err == nil {
			j.log.Error("journal cannot be written; no new call is made", "err", err)
		}
		j.err = err
		j.since = time.Now().Add(journalRetry)
		for id := range b {
			delete(j.durable, id)       // it may have become durable all the same,
			j.unsaved[id] = time.Time{} // which what is known replaces
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	if j.err != nil {
		j.log.Info("journal can be written again")
		j.err = nil
	}
	j.wrote(b)
	return nil
}

// writeEndings makes durable what of a batch ends something, for which a full disk has
// room: the intents to remove, and the records that go. It reports whether it did.
func (j *journal) writeEndings(ctx context.Context, b batch, starts []*start) bool {
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
	if len(ends) == 0 || j.store.Commit(ctx, ends) != nil {
		return false
	}
	j.wrote(ends)
	return true
}

func (j *journal) wrote(b batch) {
	for id, r := range b {
		delete(j.unsaved, id)
		if r == nil {
			delete(j.durable, id)
		} else {
			j.durable[id] = r
		}
	}
}

// commit makes the intents of starts durable, all in one write together with
// those of volumes that wait for a slot and with what waits long enough to be
// written lazily, and returns the starts that may be made: all, or those whose
// intent is durable already when the journal fails.
func (l *loop) commit(ctx context.Context, starts []*start, now time.Time) []*start {
	b := batch{}
	for _, s := range starts {
		if s.intent != nil {
			b[s.id] = s.intent
		}
	}
	var announcements []*announcement
	if len(b) > 0 {
		announcements = l.announceSome(b)
	}
	// When all is done no call waits for the write, and those who were told of a mount
	// are told so after a crash, too, unless that comes within the write.
	atRest := len(starts) == 0 && l.inFlight == 0 && l.journal.err == nil
	if len(l.journal.unsaved) > 0 && (atRest || now.Sub(l.journal.since) >= lazyWrite) {
		l.addResults(b, now)
	}
	for _, s := range starts {
		if _, late := b[s.id]; late && s.intent == nil {
			b[s.id] = &s.begun // what covers the call must not be overwritten by what was known before it
		}
	}
	err := l.journal.write(ctx, b)
	l.announced(announcements, err)
	if err == nil {
		return starts
	}
	ended := errors.Is(err, state.ErrFull) && l.journal.writeEndings(ctx, b, starts)
	var may []*start
	for _, s := range starts {
		if s.intent == nil || ended && s.op.Kind.Removes() {
			may = append(may, s)
			continue
		}
		l.notBegun(s, err, now)
	}
	return may
}

// notBegun takes a start back whose intent could not be written.
func (l *loop) notBegun(s *start, err error, now time.Time) {
	v := l.row(s.id)
	l.count(s.driver, s.op, -1)
	v.call = nil
	if s.op.Kind.Removes() {
		l.setRecord(s.intent) // it may be durable, and no removal is turned back from (rule 2)
	}
	v.hold(plan.Held{
		Step: s.op.Kind, Pod: s.op.Pod, Code: plan.Unsaved,
		Reason: "no call is made while the journal cannot be written: " + err.Error(), Until: now.Add(journalRetry),
	}, now)
	l.wakes.set(s.id, now.Add(journalRetry))
}

// addResults adds what the journal does not have but for volumes with a call in flight:
// what that brings is written with what is known now, unless that is old, and the
// journal says until then what covers the call. So of most volumes one result is
// written, and not one a call.
func (l *loop) addResults(b batch, now time.Time) {
	l.journal.since = now // of those that are left
	for id, since := range l.journal.unsaved {
		if v := l.volumes[id]; v == nil || v.call == nil || now.Sub(since) >= resultWait {
			l.addRecord(b, id)
		}
	}
}

// unsaved is all that the journal does not have.
func (l *loop) unsaved() batch {
	b := batch{}
	for id := range l.journal.unsaved {
		l.addRecord(b, id)
	}
	return b
}

func (l *loop) addRecord(b batch, id state.VolumeID) {
	if _, intent := b[id]; intent {
		return
	}
	b[id] = nil
	if v := l.volumes[id]; v != nil {
		b[id] = v.record
	}
}
