package manager

import (
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// MountsErred says, by path, which mounts are of file systems that take no writes
// now; it replaces what was said before. Those that were made read-only are
// none. The others are told of, and no container is to start on them (Verify);
// nothing is called, since what mends them is not known.
func (m *Manager) MountsErred(erred map[string]plan.Fault) {
	m.post(func(l *loop) { l.setErred(erred) })
}

func (l *loop) setErred(erred map[string]plan.Fault) {
	for id, v := range l.volumes {
		now := erredOf(v.is(), erred)
		if maps.Equal(now, v.erred) {
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(now)) {
			if v.erred[path] == "" {
				l.log.Warn("file system takes no writes", "volume", id, "path", path, "reason", now[path])
			}
		}
		for _, path := range slices.Sorted(maps.Keys(v.erred)) {
			if now[path] == "" {
				l.log.Info("file system takes writes again", "volume", id, "path", path)
			}
		}
		v.erred = now
		l.changed.push(id)
	}
}

// erredOf says for people what of erred is about what was made of v to be written to.
func erredOf(v state.Volume, erred map[string]plan.Fault) map[string]string {
	found := map[string]string{}
	add := func(path string, was state.Seen) {
		if fault, has := erred[path]; has && was.Mounted && !was.ReadOnly {
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

// drifted is all that is told of a volume's mounts that are there.
func (v *volume) drifted() map[string]string {
	if len(v.erred) == 0 {
		return v.drift
	}
	all := maps.Clone(v.erred)
	maps.Copy(all, v.drift)
	return all
}
