package manager

import (
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// countServed adds n, which is +1 or -1, to the number of volumes that r's driver serves here,
// if r has anything on the host. Inline volumes count too, since the driver's limit
// includes them.
func (l *loop) countServed(r *state.Volume, n int) {
	if !r.Clear() {
		l.driver(r.Spec.Driver).serving += n
	}
}

// noRoom says why no more volumes of a driver may be begun; "" if there is room.
func (l *loop) noRoom(d *driver) string {
	limit := d.status.MaxVolumes
	if !l.cfg.HoldAtLimit || limit <= 0 || int64(d.serving+d.entering) < limit {
		return ""
	}
	return fmt.Sprintf("driver %s serves at most %d volumes on this node, and has that many here", d.status.Name, limit)
}

// planBlockedByLimit marks the driver's volumes that may be waiting for room to be planned.
func (l *loop) planBlockedByLimit(name state.DriverName) {
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
