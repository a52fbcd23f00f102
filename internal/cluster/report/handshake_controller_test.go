package report

// controllerMoves are the steps of the attach-detach controller and of the attacher.
func controllerMoves(s *system, n int, on acts) {
	on("the controller sees the pod", false, func(s *system, n int) string { s.control.pods[n] = s.pods[n]; return "" })
	on("the controller sees the Node", false, func(s *system, n int) string { s.control.inUse[n] = s.nodes[n].inUse; return "" })
	wants := s.control.pods[n] && !s.flipped
	switch s.control.does[n] {
	case resting:
		switch knows := s.control.knows[n]; {
		case knows != attachedThere && wants && s.control.free(1-n) && !s.claims[n].deleting:
			on("the controller makes the attachment", false, func(s *system, n int) string {
				s.claims[n].there, s.control.does[n] = true, attaching
				return ""
			})
		case knows != detachedThere && !wants && !s.control.inUse[n]:
			on("the controller takes it from volumesAttached", false, func(s *system, n int) string {
				s.setAttached(n, false)
				s.control.does[n] = removed
				return ""
			})
		}
		if s.control.knows[n] == attachedThere {
			on("the controller writes volumesAttached", false, func(s *system, n int) string { s.setAttached(n, true); return "" })
		}
	case attaching:
		on("the controller sees the attachment", false, func(s *system, n int) string {
			if s.claims[n].ready {
				s.control.knows[n], s.control.does[n] = attachedThere, resting
			}
			return ""
		})
	case removed:
		on("the controller gets the Node", false, func(s *system, n int) string {
			if s.control.does[n] = deleting; s.nodes[n].inUse {
				s.control.does[n] = resting
			}
			return ""
		})
	case deleting:
		on("the DELETE is applied", false, func(s *system, n int) string {
			s.claims[n].deleting = s.claims[n].there
			s.control.does[n] = waiting
			return ""
		})
	case waiting:
		on("the controller sees that the attachment is gone", false, func(s *system, n int) string {
			if !s.claims[n].there {
				s.control.knows[n], s.control.does[n] = detachedThere, resting
			}
			return ""
		})
	}
	switch c := s.claims[n]; {
	case c.there && c.deleting:
		on("the attacher detaches", false, func(s *system, n int) string {
			s.attached[n], s.claims[n] = false, attachment{}
			s.agents[n].detached()
			if a := s.agents[n]; a.may() && !a.free && !s.excused {
				return "detached while it may be mounted"
			}
			return ""
		})
	case c.there && !c.ready:
		on("the attacher attaches", false, func(s *system, n int) string { s.attached[n], s.claims[n].ready = true, true; return "" })
	}
}

// free reports whether the controller knows of no use of the node by the volume: it attaches a ReadWriteOnce volume
// to one node only.
func (c *controller) free(n int) bool { return c.knows[n] == detachedThere && c.does[n] == resting }

func (s *system) setAttached(n int, attached bool) {
	if s.nodes[n].attached != attached {
		s.nodes[n].attached = attached
		s.nodes[n].version++
		s.agents[n].missed = true
	}
}

// restartController is a crash and the next start. By then the server has applied or lost a DELETE in flight.
func (s system) restartController(applied bool) system {
	s.left.controllerCrashes--
	c := controller{pods: s.pods}
	for n := range s.nodes {
		if applied && s.control.does[n] == deleting {
			s.claims[n].deleting = s.claims[n].there
		}
		c.inUse[n] = s.nodes[n].inUse
		switch {
		case s.nodes[n].attached:
			c.knows[n] = attachedThere
		case s.claims[n].there:
			c.knows[n] = uncertainThere
		}
	}
	s.control = c
	return s
}
