package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// commit makes the intents of starts durable, all in one write together with
// what waits to be written lazily, and returns the starts that may be made:
// all, or those whose intent is durable already when the journal fails.
func (l *loop) commit(ctx context.Context, starts []*start, now time.Time) []*start {
	batch := map[state.VolumeID]*state.Volume{}
	for _, s := range starts {
		if s.intent != nil {
			batch[s.id] = s.intent
		}
	}
	if len(batch) == 0 && (len(l.lazy) == 0 || now.Sub(l.lazySince) < lazyWrite) {
		return starts
	}
	l.addLazy(batch)
	for _, s := range starts {
		if _, lazy := batch[s.id]; lazy && s.intent == nil {
			batch[s.id] = &s.begun // what covers the call must not be overwritten by what was known before it
		}
	}
	err := l.write(ctx, batch)
	if err == nil {
		return starts
	}
	var may []*start
	for _, s := range starts {
		if s.intent == nil {
			may = append(may, s)
			continue
		}
		l.count(s.driver, s.op, -1)
		delete(l.busy, s.id)
		if s.op.Kind.Removes() {
			l.setRecord(*s.intent) // it may be durable, and no removal is turned back from (rule 2)
		}
		l.hold(s.id, plan.Held{Step: s.op.Kind, Pod: s.op.Pod, Reason: "no call is made while the journal cannot be written: " + err.Error(), Until: now.Add(journalRetry)}, now)
		l.wakes.set(s.id, now.Add(journalRetry))
	}
	return may
}

// addLazy adds to batch the records whose memory is ahead of the journal.
func (l *loop) addLazy(batch map[state.VolumeID]*state.Volume) {
	for id := range l.lazy {
		if _, intent := batch[id]; intent {
			continue
		}
		if v, ok := l.mem[id]; ok {
			batch[id] = &v
		} else {
			batch[id] = nil
		}
	}
}

// write makes a batch durable and remembers that it is.
func (l *loop) write(ctx context.Context, batch map[state.VolumeID]*state.Volume) error {
	if len(batch) == 0 {
		return nil
	}
	if err := l.cfg.Store.Commit(ctx, batch); err != nil {
		if l.journalErr == nil {
			l.log.Error("journal cannot be written; no new call is made", "err", err)
		}
		l.journalErr = err
		l.lazySince = time.Now().Add(journalRetry)
		for id := range batch {
			delete(l.durable, id)   // it may have become durable all the same,
			l.lazy[id] = struct{}{} // which what is known replaces
		}
		return fmt.Errorf("write the journal: %w", err)
	}
	if l.journalErr != nil {
		l.log.Info("journal can be written again")
		l.journalErr = nil
	}
	for id, v := range batch {
		delete(l.lazy, id)
		if v == nil {
			delete(l.durable, id)
		} else {
			l.durable[id] = *v
		}
	}
	return nil
}
