package manager

import (
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// MountFaults reports, by path, the mounts whose file systems reject writes; it replaces the
// faults of the last call. A mount that was made read-only has no fault. Status and events
// show the faults, and Verify keeps containers from starting on such mounts. The loop makes
// no call, since it does not know what would repair them.
func (m *Manager) MountFaults(faults map[string]plan.Fault) {
	m.post(func(l *loop) { l.setMountFaults(faults) })
}

func (l *loop) setMountFaults(faults map[string]plan.Fault) {
	for id, v := range l.volumes {
		now := faultsOf(v.recordOrEmpty(), faults)
		if maps.Equal(now, v.faults) {
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(now)) {
			if v.faults[path] == "" {
				l.log.Warn("file system rejects writes", "volume", id, "path", path, "reason", now[path])
			}
		}
		for _, path := range slices.Sorted(maps.Keys(v.faults)) {
			if now[path] == "" {
				l.log.Info("file system accepts writes again", "volume", id, "path", path)
			}
		}
		v.faults = now
		l.changed.push(id)
	}
}

// faultsOf returns the faults, as texts for people, of the mounts of v that were made
// writable.
func faultsOf(v state.Volume, faults map[string]plan.Fault) map[string]string {
	found := map[string]string{}
	add := func(path string, was state.Seen) {
		if fault, has := faults[path]; has && was.Mounted && !was.ReadOnly {
			found[path] = fault.String()
		}
	}
	if v.Stage.Phase == state.Present {
		add(v.Spec.StagePath, v.Staged)
	}
	for _, m := range v.Mounts {
		if m.Phase == state.Present {
			add(m.Target, m.Seen)
		}
	}
	return found
}

// allDrift returns the faults and the drift of the volume's mounts.
func (v *volume) allDrift() map[string]string {
	if len(v.faults) == 0 {
		return v.drift
	}
	all := maps.Clone(v.faults)
	maps.Copy(all, v.drift)
	return all
}

// shownDrift is allDrift with the stage that was made with an earlier attachment. That is no finding of
// a look at the mounts, so containers may still be started in the pod that has it.
func (l *loop) shownDrift(v *volume) map[string]string {
	r := v.recordOrEmpty()
	if r.Spec == nil || r.Spec.Attachment == "" && len(r.Spec.PublishContext) == 0 || len(v.wants) == 0 {
		return v.allDrift() // nearly always without a cluster, and without merging the wishes
	}
	listed := !l.cfg.InUseHandshake || l.gates.reported.has(v.id)
	anew := plan.AttachedAnew(plan.HoldUntilListed(v.mergeWishes(), v.id, listed), r)
	if anew == "" {
		return v.allDrift()
	}
	all := map[string]string{}
	maps.Copy(all, v.allDrift())
	all[v.record.Spec.StagePath] = anew
	return all
}
