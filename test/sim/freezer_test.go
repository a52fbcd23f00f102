package sim

import (
	"context"
	"errors"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// hold is one freeze of a volume's file system: a snapshot taken during it is consistent with any
// moment of it.
type hold struct {
	since, until time.Time // until is zero while the freeze lasts
	limit        time.Duration
	life         int
}

// freezer freezes file systems for one life of the daemon. They stay frozen when the daemon dies.
type freezer struct {
	w     *world
	l     *life
	begun chan struct{} // closed once the freezes of earlier lives are thawed
}

func newFreezer(w *world, l *life) *freezer {
	return &freezer{w: w, l: l, begun: make(chan struct{})}
}

func (f *freezer) Run(ctx context.Context) error {
	f.thawAll()
	close(f.begun)
	<-ctx.Done()
	f.thawAll()
	return nil
}

func (f *freezer) thawAll() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if !f.l.dead {
		f.w.thawHolds()
	}
}

// thawHolds ends every freeze; mu is held.
func (w *world) thawHolds() {
	for id := range w.holds {
		w.endHold(id)
	}
}

func (w *world) endHold(id state.VolumeID) {
	w.holds[id].until = time.Now()
	delete(w.holds, id)
}

func (f *freezer) Freeze(ctx context.Context, id state.VolumeID, limit time.Duration) (thaw func(context.Context) (early bool), err error) {
	select {
	case <-f.begun:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w, l := f.w, f.l
	w.mu.Lock()
	l.nth["Freeze "+string(id)]++
	roll := w.dice("Freeze", id, l.number, l.nth["Freeze "+string(id)], w.faults.salt)
	fails := roll%100 < w.faults.percent && roll/100%3 == 0
	w.mu.Unlock()
	waited := (&driver{w: w, l: l}).nap(ctx, time.Duration(roll/1000%300)*time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case l.dead:
		return nil, errDead
	case !waited:
		return nil, ctx.Err()
	case fails:
		w.count.faults["freeze"]++
		return nil, errors.New("the file system cannot be frozen")
	case w.holds[id] != nil:
		w.breach("freeze: %s is frozen twice", id)
	}
	h := &hold{since: time.Now(), limit: limit, life: l.number}
	w.holds[id] = h
	time.AfterFunc(limit, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.holds[id] == h && !l.dead {
			w.endHold(id)
		}
	})
	return func(context.Context) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if l.dead || w.holds[id] != h {
			return true
		}
		w.endHold(id)
		return false
	}, nil
}

// still checks that a living daemon freezes no file system longer than allowed; mu is held.
func (j *judge) still(l *life) {
	for id, h := range j.w.holds {
		if h.life == l.number && time.Since(h.since) > h.limit {
			j.w.breach("freeze: %s is frozen for %v, and may be for %v", id, time.Since(h.since), h.limit)
		}
	}
}

// together reports whether every snapshot was made during a freeze, and all these freezes overlap
// at one moment.
func together(cuts []*stored) bool {
	var since, until time.Time
	for _, c := range cuts {
		if c.hold == nil {
			return false
		}
		if c.hold.since.After(since) {
			since = c.hold.since
		}
		if end := c.hold.until; !end.IsZero() && (until.IsZero() || end.Before(until)) {
			until = end
		}
	}
	return until.IsZero() || !until.Before(since)
}
