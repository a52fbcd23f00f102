package manager

import (
	"cmp"
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recover takes over the journal's records. There is nothing to reconstruct:
// they say what was present, and what was under way.
func (l *loop) recover(loaded state.Loaded) {
	l.found = Found{Volumes: len(loaded.Volumes) + len(loaded.Quarantined), Unreadable: len(loaded.Quarantined)}
	for id, v := range loaded.Volumes {
		l.journal.durable[id] = &v
		l.setRecord(new(plan.Reset(plan.AskDriver(v))))
		delete(l.journal.unsaved, id)
		l.driverOf(v, state.Want{})
		l.dirty.push(id)
	}
	l.log.Info("journal is loaded", "volumes", len(loaded.Volumes), "quarantined", len(loaded.Quarantined),
		"rebooted", loaded.BootID != "" && loaded.BootID != l.cfg.BootID)
	l.doubtRecords(loaded.Recovery, len(loaded.Quarantined))
	if l.sameBoot = loaded.BootID == l.cfg.BootID; l.sameBoot {
		return
	}
	for _, v := range l.volumes { // no mount of an earlier boot is there
		if now, changes := plan.Adopt(v.recordOrEmpty(), false, nil); len(changes) > 0 {
			l.found.Changed++
			l.setRecord(&now)
		}
	}
}

// look compares every record that says that something is present with the
// kernel. Then the boot id is stored: records of another boot are known as such
// until they are written.
func (l *loop) look(ctx context.Context) {
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

// lookAt compares records with the kernel, off the loop, and calls done after
// each; until then the volume is not planned.
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
				seen := look(ctx, l.cfg.Kernel, paths(t.v))
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

// lookAtSuspects does so but for those with a call in flight, which come when it
// has ended: it looks at no path but its own.
func (l *loop) lookAtSuspects(ctx context.Context) {
	var ids []state.VolumeID
	for id, asked := range l.suspects {
		switch v := l.volumes[id]; {
		case v == nil || v.record == nil:
			delete(l.suspects, id) // it went meanwhile
			answerAll(asked, "it is not mounted any more")
		case v.call == nil:
			ids = append(ids, id)
		}
	}
	l.lookAt(ctx, ids, func(*loop) {})
}

// suspect has a volume compared with the kernel again, and calls each of asked with
// the result.
func (l *loop) suspect(id state.VolumeID, asked ...func(problem string)) {
	l.suspects[id] = append(l.suspects[id], asked...)
}

// applySeen takes what was seen of a volume into its record, and returns what is
// wrong with it, "" for nothing.
func (l *loop) applySeen(id state.VolumeID, seen map[string]state.Seen) (problem string) {
	v := l.row(id)
	v.call, v.unseen = nil, nil
	l.dirty.push(id)
	now, changes := plan.Adopt(v.recordOrEmpty(), true, seen)
	for _, c := range changes {
		l.log.Warn("what was present is not as it was left", "volume", id, "pod", c.Pod, "path", c.Path, "reason", c.Why)
	}
	if len(changes) > 0 {
		if l.looking > 0 { // this is the look at the start
			l.found.Changed++
		}
		l.setRecord(&now)
	} else {
		v.record = &now // with what was seen of its mounts, which the next start sees anew
	}
	l.setDrift(v, plan.Drift(now, seen))
	unlooked := len(seen) < len(paths(now))
	if unlooked { // what could not be looked at is kept, and may be gone
		v.unseen = set[state.PodUID]{}
		for uid, m := range now.Mounts {
			if _, ok := seen[m.Target]; !ok && m.Phase == state.Entering && l.sameBoot {
				v.unseen[uid] = struct{}{}
			}
		}
		time.AfterFunc(lookRetry, func() { l.m.post(func(l *loop) { l.suspect(id) }) })
	}
	return problemOf(changes, unlooked, v.drifted())
}

// reasonUnseen is why a mount that may have been made, and of which its pod may
// have been told before the journal was, is not made in another form.
const reasonUnseen = "not unmounted: what is mounted cannot be examined, and the pod may use it"

// storeBootID says durably that the records are of this boot, and tries until it
// is so: a restart that takes this boot for another would make every call again.
// The records that a reboot changed are written first: losing the order only
// repeats calls.
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

// paths are those of a record at which something is said to be present, or a
// mount may be that a pod was told of before the journal was.
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

// look asks the kernel about paths; one that cannot be looked at is left out.
func look(ctx context.Context, k Kernel, paths []string) map[string]state.Seen {
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
