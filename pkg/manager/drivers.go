package manager

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// publishDrivers writes the status of all drivers to the snapshot. It overwrites the values
// in place: a map of values would allocate each one again every round.
func (l *loop) publishDrivers(snap *snapshot) {
	maps.DeleteFunc(snap.drivers, func(name state.DriverName, _ *DriverStatus) bool { return l.drivers[name] == nil })
	for name, d := range l.drivers {
		s, there := snap.drivers[name]
		if !there {
			s = &DriverStatus{}
			snap.drivers[name] = s
		}
		*s = d.status
		s.Calls, s.Volumes, s.Limit = d.running.Calls, len(d.keys), 0
		if d.running.More != 0 {
			s.Limit = l.cfg.Limits.Driver + d.running.More
		}
	}
}

// Drivers returns every driver that was up or is named by a volume, sorted by name.
func (m *Manager) Drivers() []DriverStatus {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	var all []DriverStatus
	for _, s := range m.snapshot.drivers {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b DriverStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
