package controller

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// slots limits the calls in flight to one driver. Owned by Run.
type slots struct {
	taken   int
	waiting []Key // in the order of arrival
}

func (c *Controller) slotsOf(name state.DriverName) *slots {
	s := c.slots[name]
	if s == nil {
		s = &slots{}
		c.slots[name] = s
	}
	return s
}

// takeSlot takes a slot for o, or queues e for one. If e was woken for a slot that it does not use,
// the next in the queue is woken.
func (c *Controller) takeSlot(e *entry, o op, h held) {
	name, granted := driverOf(e), e.granted
	e.granted = ""
	switch {
	case o.verb.limited():
		c.slotsOf(name).taken++
	case h.slot && e.queued != name:
		s := c.slotsOf(name)
		s.waiting, e.queued = append(s.waiting, e.key), name
	}
	if granted != "" && !(o.verb.limited() && granted == name) {
		c.wakeForSlot(granted)
	}
}

// releaseSlot returns a slot.
func (c *Controller) releaseSlot(name state.DriverName) {
	c.slotsOf(name).taken--
	c.wakeForSlot(name)
}

// wakeForSlot plans as many waiting claims as there are free slots.
func (c *Controller) wakeForSlot(name state.DriverName) {
	s := c.slotsOf(name)
	for free := c.cfg.MaxCalls - s.taken; free > 0 && len(s.waiting) > 0; {
		key := s.waiting[0]
		s.waiting = s.waiting[1:]
		if e := c.claims.entries[key]; e != nil && e.queued == name {
			e.queued, e.granted = "", name
			c.claims.touch(key)
			free--
		}
	}
}
