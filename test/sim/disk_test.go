package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var (
	errDead = errors.New("the daemon is dead")
	errDisk = errors.New("disk error")
)

// disk is what survives the daemon: a real journal, in memory.
type disk struct {
	journal *journal.Memory
	records map[state.VolumeID]state.Volume // the journal's records, decoded
	spare   *journal.Memory                 // a copy of the journal, made when the daemon started
	// lost: the spare copy replaced the journal, and no operator has accepted that yet.
	lost bool
	// damaged: the spare copy has replaced the journal at some time.
	damaged bool
	// fail is how many of the next writes fail; some of them are durable nevertheless.
	fail int
	// full: it takes only writes that begin nothing.
	full bool
	// takes is the duration of a write, during which other things happen.
	takes time.Duration
}

func newDisk() *disk {
	return &disk{journal: journal.NewMemory(), records: map[state.VolumeID]state.Volume{}, spare: journal.NewMemory()}
}

// store is the disk for one life of the daemon.
type store struct {
	w *world
	l *life
}

func (s store) Load(ctx context.Context) (state.Loaded, error) { return s.w.disk.journal.Load(ctx) }

func (s store) SetBootID(ctx context.Context, id string) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.l.dead {
		return errDead
	}
	return s.w.disk.journal.SetBootID(ctx, id)
}

// Commit is atomic, like bbolt's: a crash leaves all of it or nothing.
func (s store) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.l.dead {
		return errDead
	}
	w.count.commits++
	for _, v := range changes {
		if v != nil {
			w.judge.decided(s.l, *v)
		}
	}
	d := w.disk
	if d.takes > 0 && !s.wait(d.takes) {
		w.count.crashes["in a commit"]++
		if w.dice("cut", w.count.commits)%2 == 0 {
			_ = d.write(ctx, changes) // the kernel has it, whatever happens to its writer
		}
		return errDead
	}
	if d.full && d.begins(changes) {
		w.count.faults["full disk"]++
		return state.ErrFull
	}
	if d.fail > 0 {
		d.fail--
		w.count.faults["disk"]++
		if w.dice("unknown", w.count.commits)%3 > 0 {
			return errDisk
		}
		if err := d.write(ctx, changes); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", state.ErrUnknown, errDisk)
	}
	dies := w.springs("commit")
	if dies && !w.trap.after {
		w.count.crashes["before a commit"]++
		w.ends(s.l)
		return errDead
	}
	if err := d.write(ctx, changes); err != nil {
		return err
	}
	if dies {
		w.count.crashes["after a commit"]++
		w.ends(s.l)
		return errDead
	}
	return nil
}

// begins reports whether a fact is entering or present in a change and absent in the journal.
func (d *disk) begins(changes map[state.VolumeID]*state.Volume) bool {
	makes := func(was, is state.Fact) bool {
		return was.Phase == state.Absent && (is.Phase == state.Entering || is.Phase == state.Present)
	}
	for id, v := range changes {
		was, known := d.records[id]
		switch {
		case v == nil:
			continue
		case !known, makes(was.Attach, v.Attach), makes(was.Stage, v.Stage):
			return true
		}
		for uid, m := range v.Mounts {
			if makes(was.Mounts[uid].Fact, m.Fact) {
				return true
			}
		}
	}
	return false
}

// wait lets time pass, and reports whether the daemon is still alive; mu is held before and after.
func (s store) wait(d time.Duration) bool {
	s.w.count.faults["slow commit"]++
	s.w.mu.Unlock()
	defer s.w.mu.Lock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.l.died:
	}
	select {
	case <-s.l.died:
		return false
	default:
		return true
	}
}

// jump makes all times in the journal older by ahead, as they appear to a clock that was put
// forward.
func (d *disk) jump(ahead time.Duration) error {
	if ahead == 0 {
		return nil
	}
	changes := map[state.VolumeID]*state.Volume{}
	for id, v := range d.records {
		older := func(at *time.Time) {
			if !at.IsZero() {
				*at = at.Add(-ahead)
			}
		}
		retry := func(failed **state.Retry) {
			if *failed != nil {
				r := **failed
				older(&r.Since)
				older(&r.NotBefore)
				*failed = &r
			}
		}
		retry(&v.Attach.Failed)
		retry(&v.Stage.Failed)
		retry(&v.ExpandFailed)
		v.Mounts = maps.Clone(v.Mounts)
		for uid, m := range v.Mounts {
			retry(&m.Failed)
			older(&m.RevisionAt)
			older(&m.RenewAt)
			v.Mounts[uid] = m
		}
		changes[id] = &v
	}
	return d.write(context.Background(), changes)
}

func (d *disk) write(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	if err := d.journal.Commit(ctx, changes); err != nil {
		return err
	}
	for id, v := range changes {
		if v == nil {
			delete(d.records, id)
			continue
		}
		r := *v
		r.Mounts = maps.Clone(v.Mounts)
		d.records[id] = r
	}
	return nil
}
