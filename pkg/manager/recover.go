package manager

import (
	"cmp"
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recover loads the journal's records. Nothing has to be reconstructed: the records say
// what was present and which calls were in flight.
func (l *loop) recover(loaded state.Loaded) {
	l.found = Found{Volumes: len(loaded.Volumes) + len(loaded.Quarantined), Unreadable: len(loaded.Quarantined)}
	for id, v := range loaded.Volumes {
		l.journal.durable[id] = &v
		l.setRecord(new(plan.Reset(plan.RetryExpandOnNewDriver(v))))
		l.row(id).old = loaded.Recovery.Lost()
		delete(l.journal.unsaved, id)
		l.driverOf(v, state.Want{})
		l.dirty.push(id)
	}
	l.log.Info("journal is loaded", "volumes", len(loaded.Volumes), "quarantined", len(loaded.Quarantined),
		"rebooted", loaded.BootID != "" && loaded.BootID != l.cfg.BootID)
	l.trackUnrecorded(loaded.Recovery, len(loaded.Quarantined))
	if l.cfg.Place != nil {
		l.left.recorded = l.recordedPaths()
	}
	if l.sameBoot = loaded.BootID == l.cfg.BootID; l.sameBoot {
		return
	}
	for _, v := range l.volumes { // no mount survived the reboot
		now, changes := plan.Adopt(v.recordOrEmpty(), false, nil)
		if len(changes) > 0 {
			l.found.Changed++
		}
		if len(changes) > 0 || len(now.Mounts) > 0 {
			l.setRecord(&now)
		}
	}
}

// lookAtAll compares with the kernel every record that says that something is, or may be,
// mounted. Only then is the boot ID stored, so that records of an earlier boot are
// recognized as such until they have been corrected.
func (l *loop) lookAtAll(ctx context.Context) {
	var ids []state.VolumeID
	for id, v := range l.volumes {
		if paths(v.recordOrEmpty()) != nil {
			ids = append(ids, id)
		}
	}
	l.looking = len(ids)
	l.lookAt(ctx, ids, func(l *loop) {
		if l.looking--; l.looking == 0 {
			l.storeBootID(context.WithoutCancel(ctx))
		}
	})
	if len(ids) == 0 {
		l.storeBootID(ctx)
	}
}

// lookAt compares records with the kernel, on other goroutines, and calls done on the loop
// after each. A volume is not planned while it is being compared.
func (l *loop) lookAt(ctx context.Context, ids []state.VolumeID, done func(*loop)) {
	type task struct {
		v     state.Volume
		asked []func(problem string)
	}
	next := make(chan task, len(ids))
	for _, id := range ids {
		v := l.row(id)
		v.call = &call{}
		next <- task{v.recordOrEmpty(), l.suspects[id]}
		delete(l.suspects, id)
	}
	close(next)
	for range min(lookers, len(ids)) {
		l.inFlight++
		go func() {
			for t := range next {
				seen := lookAtPaths(ctx, l.cfg.Kernel, paths(t.v))
				problem := ""
				if len(t.asked) > 0 {
					problem = probe(ctx, l.cfg.Kernel, t.v)
				}
				l.m.post(func(l *loop) {
					found := l.applySeen(t.v.ID, seen)
					answerAll(t.asked, cmp.Or(found, problem))
					done(l)
				})
			}
			l.m.post(func(l *loop) { l.inFlight-- })
		}()
	}
}

// lookAtSuspects compares the suspects that have no call in flight with the kernel. The
// others are compared when their call has ended, since the call checks only its own path.
func (l *loop) lookAtSuspects(ctx context.Context) {
	var ids []state.VolumeID
	for id, asked := range l.suspects {
		switch v := l.volumes[id]; {
		case v == nil || v.record == nil:
			delete(l.suspects, id) // it was removed meanwhile
			answerAll(asked, "it is no longer mounted")
		case v.call == nil:
			ids = append(ids, id)
		}
	}
	l.lookAt(ctx, ids, func(*loop) {})
}

// suspect marks a volume to be compared with the kernel again. Each of asked is called
// with the result.
func (l *loop) suspect(id state.VolumeID, asked ...func(problem string)) {
	l.suspects[id] = append(l.suspects[id], asked...)
}

// applySeen updates a volume's record with what the kernel showed, and returns what is wrong
// with the volume; "" if nothing is.
func (l *loop) applySeen(id state.VolumeID, seen map[string]state.Seen) (problem string) {
	v := l.row(id)
	v.call, v.unseen = nil, nil
	l.dirty.push(id)
	now, changes := plan.Adopt(v.recordOrEmpty(), true, seen)
	for _, c := range changes {
		l.log.Warn("recorded mount is gone or replaced", "volume", id, "pod", c.Pod, "path", c.Path, "reason", c.Why)
	}
	if len(changes) > 0 {
		if l.looking > 0 { // this is the look at the start
			l.found.Changed++
		}
		l.setRecord(&now)
	} else {
		v.record = &now // it differs only in Seen, which the next start reads from the kernel again
	}
	l.setDrift(v, plan.Drift(now, seen))
	unlooked := len(seen) < len(paths(now))
	if unlooked { // facts that could not be examined are kept, although they may be gone
		v.unseen = set[state.PodUID]{}
		for uid, m := range now.Mounts {
			if _, ok := seen[m.Target]; !ok && m.Phase == state.Entering && l.sameBoot {
				v.unseen[uid] = struct{}{}
			}
		}
		l.lookLater(v)
	}
	return problemOf(changes, unlooked, v.allDrift())
}

// lookLater has a volume compared with the kernel again after lookRetry. Each failed look calls it,
// and all of them share one timer: otherwise each event that asks for a look would start a series.
func (l *loop) lookLater(v *volume) {
	if v.lookLater {
		return
	}
	v.lookLater = true
	time.AfterFunc(lookRetry, func() {
		l.m.post(func(l *loop) {
			v.lookLater = false
			l.suspect(v.id)
		})
	})
}

// reasonUnseen is why a mount is not replaced by one of another form: it may have been made
// and reported to its pod before a crash, without being journaled.
const reasonUnseen = "not unmounted: the mount cannot be examined, and the pod may be using it"

// storeBootID stores the boot ID, after the records that a reboot changed, and retries
// until it has succeeded. If it were missing, a restart would take this boot for another one
// and repeat every call.
func (l *loop) storeBootID(ctx context.Context) {
	if l.sameBoot {
		return
	}
	err := l.journal.write(ctx, l.unsaved())
	if err == nil {
		l.journal.writes++
		err = l.cfg.Store.SetBootID(ctx, l.cfg.BootID)
	}
	if l.sameBoot = err == nil; l.sameBoot {
		return
	}
	l.log.Error("boot id cannot be stored yet", "err", err)
	time.AfterFunc(journalRetry, func() { l.m.post(func(l *loop) { l.storeBootID(ctx) }) })
}

// paths returns the paths of a record at which a stage is present, or a mount is present or
// may have been made without being journaled.
func paths(v state.Volume) []string {
	var ps []string
	if v.Stage.Phase == state.Present {
		ps = append(ps, v.Spec.StagePath)
	}
	for _, m := range v.Mounts {
		if m.Phase == state.Present || m.Phase == state.Entering {
			ps = append(ps, m.Target)
		}
	}
	return ps
}

// lookAtPaths asks the kernel about paths, and leaves out those that cannot be examined.
func lookAtPaths(ctx context.Context, k Kernel, paths []string) map[string]state.Seen {
	seen := make(map[string]state.Seen, len(paths))
	for _, p := range paths {
		one, cancel := context.WithTimeout(ctx, lookDeadline)
		if s, err := k.Look(one, p); err == nil {
			seen[p] = s
		}
		cancel()
	}
	return seen
}
