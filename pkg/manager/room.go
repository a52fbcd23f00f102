package manager

import (
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// serves counts a record, n is +1 or -1, among those that its driver serves here:
// inline volumes and persistent ones, for the driver's limit is for all of them.
func (l *loop) serves(r *state.Volume, n int) {
	if !r.Clear() {
		l.driver(r.Spec.Driver).serving += n
	}
}

// full says why nothing more of a driver may be begun, "" where there is room.
func (l *loop) full(d *driver) string {
	limit := d.status.MaxVolumes
	if !l.cfg.HoldAtLimit || limit <= 0 || int64(d.serving+d.entering) < limit {
		return ""
	}
	return fmt.Sprintf("driver %s serves at most %d volumes on this node, and has that many here", d.status.Name, limit)
}

// retryFull plans the volumes of a driver again that may have waited for room.
func (l *loop) retryFull(name state.DriverName) {
	d := l.drivers[name]
	if d == nil || !l.cfg.HoldAtLimit || d.status.MaxVolumes <= 0 {
		return
	}
	for id := range d.keys {
		if l.volumes[id].clear() {
			l.dirty.push(id)
		}
	}
}
