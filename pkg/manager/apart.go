package manager

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// apart is a driver's Controller service at an endpoint of its own.
type apart struct {
	attaches bool
	why      string // why it cannot be called
}

// problem returns why the controller cannot be called; nil if it has no endpoint of its own.
func (a *apart) problem() *string {
	if a == nil {
		return nil
	}
	return &a.why
}

func (l *loop) driverAttaches(name state.DriverName, attaches bool, why *string) {
	d := l.driver(name)
	before := d.apart
	d.apart = nil
	if why != nil {
		d.apart, d.status.Attach = &apart{attaches, *why}, attaches
	}
	cured := d.apart != nil && d.apart.why == "" && (before == nil || before.why != "")
	for id := range d.keys {
		if cured {
			l.reset(id)
		}
		l.dirty.push(id)
	}
}
