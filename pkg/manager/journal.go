package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// commit makes the intents of starts durable, all in one write together with
// those of volumes that wait for a slot and with what waits long enough to be
// written lazily, and returns the starts that may be made: all, or those whose
// intent is durable already when the journal fails.
func (l *loop) commit(ctx context.Context, starts []*start, now time.Time) []*start {
	batch := map[state.VolumeID]*state.Volume{}
	for _, s := range starts {
		if s.intent != nil {
			batch[s.id] = s.intent
		}
	}
	var early []*announcement
	if len(batch) > 0 {
		early = l.announceSome(batch)
	}
	// When all is done no call waits for the write, and whoever was told of a mount
	// is told so after a crash, too, unless that comes within the write.
	atRest := len(starts) == 0 && l.inFlight == 0 && l.journalErr == nil
	if len(l.lazy) > 0 && (atRest || now.Sub(l.lazySince) >= lazyWrite) {
		l.addResults(batch, now)
	}
	for _, s := range starts {
		if _, late := batch[s.id]; late && s.intent == nil {
			batch[s.id] = &s.begun // what covers the call must not be overwritten by what was known before it
		}
	}
	err := l.write(ctx, batch)
	l.announced(early, err)
	if err == nil {
		return starts
	}
	ended := errors.Is(err, state.ErrFull) && l.writeEndings(ctx, batch, starts)
	var may []*start
	for _, s := range starts {
		if s.intent == nil || ended && s.op.Kind.Removes() {
			may = append(may, s)
			continue
		}
		l.count(s.driver, s.op, -1)
		delete(l.busy, s.id)
		if s.op.Kind.Removes() {
			l.setRecord(s.intent) // it may be durable, and no removal is turned back from (rule 2)
		}
		l.hold(s.id, plan.Held{Step: s.op.Kind, Pod: s.op.Pod, Reason: "no call is made while the journal cannot be written: " + err.Error(), Until: now.Add(journalRetry)}, now)
		l.wakes.set(s.id, now.Add(journalRetry))
	}
	return may
}

// addResults is addLazy but for volumes with a call in flight: what it brings is
// written with what is known now, unless that is old, and the journal says until
// then what covers the call. So of most volumes one result is written, and not
// one a call.
func (l *loop) addResults(batch map[state.VolumeID]*state.Volume, now time.Time) {
	l.lazySince = now // of those that are left
	for id, since := range l.lazy {
		if _, busy := l.busy[id]; !busy || now.Sub(since) >= resultWait {
			l.addRecord(batch, id)
		}
	}
}

// writeEndings makes durable what of a batch ends something, for which a full
// disk has room: the intents to remove, and the records that go.
func (l *loop) writeEndings(ctx context.Context, batch map[state.VolumeID]*state.Volume, starts []*start) bool {
	ends := map[state.VolumeID]*state.Volume{}
	for id, v := range batch {
		if v == nil {
			ends[id] = nil
		}
	}
	for _, s := range starts {
		if s.intent != nil && s.op.Kind.Removes() {
			ends[s.id] = s.intent
		}
	}
	if len(ends) == 0 || l.cfg.Store.Commit(ctx, ends) != nil {
		return false
	}
	l.wrote(ends)
	return true
}

// addLazy adds to batch the records whose memory is ahead of the journal.
func (l *loop) addLazy(batch map[state.VolumeID]*state.Volume) {
	for id := range l.lazy {
		l.addRecord(batch, id)
	}
}

func (l *loop) addRecord(batch map[state.VolumeID]*state.Volume, id state.VolumeID) {
	if _, intent := batch[id]; intent {
		return
	}
	batch[id] = nil
	if v, ok := l.mem[id]; ok {
		batch[id] = v
	}
}

// write makes a batch durable and remembers that it is.
func (l *loop) write(ctx context.Context, batch map[state.VolumeID]*state.Volume) error {
	if len(batch) == 0 {
		return nil
	}
	l.writes++
	if err := l.cfg.Store.Commit(ctx, batch); err != nil {
		if l.journalErr == nil {
			l.log.Error("journal cannot be written; no new call is made", "err", err)
		}
		l.journalErr = err
		l.lazySince = time.Now().Add(journalRetry)
		for id := range batch {
			delete(l.durable, id)    // it may have become durable all the same,
			l.lazy[id] = time.Time{} // which what is known replaces
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	if l.journalErr != nil {
		l.log.Info("journal can be written again")
		l.journalErr = nil
	}
	l.wrote(batch)
	return nil
}

// wrote remembers that a batch is durable.
func (l *loop) wrote(batch map[state.VolumeID]*state.Volume) {
	for id, v := range batch {
		delete(l.lazy, id)
		if v == nil {
			delete(l.durable, id)
		} else {
			l.durable[id] = v
		}
	}
}
