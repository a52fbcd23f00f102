package report

import (
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// system is one state of the whole model.
type system struct {
	left budget
	// The API server.
	pods    [2]bool
	nodes   [2]snapshot
	claims  [2]attachment
	flipped bool // the CSIDriver says that no controller attaches
	// The storage and the programs.
	attached [2]bool
	agents   [2]agent
	control  controller
	// excused: another program erased the list, and no node can protect itself from that.
	excused bool
}

// attachment is a VolumeAttachment.
type attachment struct{ there, ready, deleting bool }

// What the controller does for a node.
const (
	resting uint8 = iota
	attaching
	removed  // removed from volumesAttached
	deleting // the DELETE is in flight
	waiting  // until the attachment is gone
)

// What the controller knows of a node.
const (
	detachedThere uint8 = iota
	uncertainThere
	attachedThere
)

// controller is Kubernetes' attach-detach controller (pkg/controller/volume/attachdetach).
type controller struct {
	pods, inUse [2]bool // from its informers
	knows, does [2]uint8
}

// start is a cluster in which nothing is mounted yet.
func start(left budget) system {
	s := system{left: left}
	for n := range s.nodes {
		s.nodes[n] = snapshot{version: 1}
		s.agents[n] = agent{up: true, watched: s.nodes[n]}
	}
	return s
}

// canonical renumbers the versions of each Node: only their order matters.
func (s system) canonical() system {
	for n := range s.nodes {
		a := &s.agents[n]
		if a.inFlight[0].version < a.inFlight[1].version {
			a.inFlight[0], a.inFlight[1] = a.inFlight[1], a.inFlight[0]
		}
		all := []*uint8{&s.nodes[n].version, &a.watched.version, &a.node.version, &a.answer.version, &a.inFlight[0].version, &a.inFlight[1].version}
		values := []uint8{0}
		for _, v := range all {
			values = append(values, *v)
		}
		slices.Sort(values)
		values = slices.Compact(values)
		for _, v := range all {
			*v = uint8(slices.Index(values, *v)) //nolint:gosec // few
		}
	}
	return s
}

// fulfilled reports whether the state is what the pods want.
func (s system) fulfilled() bool {
	mounted, wanted := 0, 0
	for n, a := range s.agents {
		switch {
		case !a.up || a.pod != s.pods[n] || a.op != plan.None:
			return false
		case !s.pods[n]:
			if a.phase != state.Absent || s.nodes[n].inUse {
				return false
			}
		default:
			wanted++
			if a.phase == state.Present {
				mounted++
				if !a.free && !s.nodes[n].inUse {
					return false
				}
			}
		}
	}
	return mounted > 0 || wanted == 0
}

// move is one step of one program, or a fault.
type move struct {
	what   string
	node   int // -1 for none
	to     system
	fault  bool // it may never happen
	breach string
}

func (m move) String() string {
	if m.node < 0 {
		return m.what
	}
	return fmt.Sprintf("node %d: %s", m.node, m.what)
}

// moves returns every possible next step.
func (r *rules) moves(s system) (out []move) {
	for n := range s.nodes {
		on := func(what string, fault bool, act func(*system, int) string) {
			to := s
			if breach := act(&to, n); breach != "" || to != s {
				out = append(out, move{what, n, to, fault, breach})
			}
		}
		r.agentMoves(&s.agents[n], on)
		controllerMoves(&s, n, on)
		r.faults(&s, n, on)
	}
	if s.left.flips > 0 {
		to := s
		to.left.flips--
		to.flipped = true
		out = append(out, move{"the CSIDriver needs no attachment any more", -1, to, true, ""})
	}
	if s.left.controllerCrashes > 0 {
		for what, applied := range map[string]bool{"the controller crashes, its DELETE is lost": false, "the controller crashes, its DELETE is applied": true} {
			out = append(out, move{what, -1, s.restartController(applied), true, ""})
		}
	}
	return out
}

type acts func(what string, fault bool, act func(*system, int) string)

// agentMoves are the steps of csi-volmgr and of its requests in flight.
func (r *rules) agentMoves(a *agent, on acts) {
	for i, f := range a.inFlight {
		if f.version != 0 {
			on("a write is applied or refused", false, func(s *system, n int) string { return s.apply(r.versions, n, i) })
			if !f.owned {
				on("a late write is lost", false, func(s *system, n int) string { s.agents[n].inFlight[i] = write{}; return "" })
			}
		}
	}
	if !a.up {
		on("csi-volmgr starts", false, func(s *system, n int) string { s.agents[n].up, s.agents[n].pod = true, s.pods[n]; return "" })
		return
	}
	on("the watch tells of the Node", false, func(s *system, n int) string { s.agents[n].watch(r, s.nodes[n]); return "" })
	on("the watch tells of the pod", false, func(s *system, n int) string { s.agents[n].pod = s.pods[n]; return "" })
	on("the watch tells of the CSIDriver", false, func(s *system, n int) string { s.agents[n].flipped = s.flipped; return "" })
	if a.late != unread {
		on("the answer about the attachment comes", false, func(s *system, n int) string {
			b := &s.agents[n]
			b.knows, b.late = b.late, unread
			return ""
		})
	} else {
		on("the attachment is read", false, func(s *system, n int) string {
			s.agents[n].knows = s.agents[n].read(r, s.claims[n])
			return ""
		})
	}
	on("the manager takes in what is marked", false, func(s *system, n int) string { s.agents[n].reported = s.agents[n].marked; return "" })
	switch a.doing {
	case idle:
		on("the reporter looks", false, func(s *system, n int) string { r.look(&s.agents[n]); return "" })
	case settling:
		on("the manager has settled", false, func(s *system, n int) string {
			if b := &s.agents[n]; b.reported == b.marked {
				b.doing = idle
			}
			return ""
		})
	case answered, refused:
		on("the reporter has the answer", false, func(s *system, n int) string { s.agents[n].take(); return "" })
	}
	if a.op != plan.None {
		on(a.op.String()+" has ended", false, func(s *system, n int) string { s.agents[n].end(); return "" })
	} else if kind := r.calls(*a); kind != plan.None {
		on(kind.String()+" begins", false, func(s *system, n int) string {
			s.agents[n].begin(r)
			switch b := s.agents[n]; {
			case s.excused || s.flipped || kind != plan.Publish:
			case s.agents[1-n].may():
				return "mounted on two nodes"
			case !s.attached[n] && !b.free:
				return "mounted where it is not attached"
			case b.knows == past && !b.free:
				return "mounted with the context of a previous attachment"
			}
			return ""
		})
	}
}

// take lets the reporter process the answer to its write.
func (a *agent) take() {
	a.node, a.unsure, a.sent = a.answer, false, false
	a.claimed = a.claimed || a.doing == answered
	a.answer, a.doing = snapshot{}, idle
}

// apply lets the API server apply a write, or refuse it for its version.
func (s *system) apply(versions bool, n, i int) string {
	a := &s.agents[n]
	f := a.inFlight[i]
	a.inFlight[i] = write{}
	result := refused
	if f.version == s.nodes[n].version || !versions {
		if result = answered; f.list != s.nodes[n].inUse || f.first {
			s.nodes[n].inUse = f.list
			s.nodes[n].version++
		}
	}
	if f.owned {
		a.answer, a.doing = s.nodes[n], result
	}
	return ""
}

// faults are what may go wrong, and the changes that users make.
func (r *rules) faults(s *system, n int, on acts) {
	if s.left.toggles[n] > 0 {
		on("the pod comes or goes", true, func(s *system, n int) string { s.left.toggles[n]--; s.pods[n] = !s.pods[n]; return "" })
	}
	if s.left.beats > 0 {
		on("another program writes the Node's status", true, func(s *system, n int) string { s.left.beats--; s.nodes[n].version++; return "" })
	}
	if s.left.erased > 0 && s.nodes[n].inUse {
		on("another program erases the list", true, func(s *system, n int) string {
			s.left.erased--
			s.nodes[n].inUse, s.excused = false, true
			s.nodes[n].version++
			return ""
		})
	}
	if a := s.agents[n]; s.left.lateReads > 0 && a.up && a.late == unread {
		on("the answer about the attachment is late", true, func(s *system, n int) string {
			s.left.lateReads--
			s.agents[n].late = a.read(r, s.claims[n])
			return ""
		})
	}
	if a := s.agents[n]; s.left.agentCrashes > 0 && a.up {
		on("csi-volmgr crashes", true, func(s *system, n int) string { s.left.agentCrashes--; s.agents[n].crash(); return "" })
	}
	if s.left.lost > 0 {
		for i, f := range s.agents[n].inFlight {
			if f.owned {
				on("csi-volmgr waits no longer for an answer", true, func(s *system, n int) string {
					s.left.lost--
					s.agents[n].inFlight[i].owned, s.agents[n].doing = false, idle
					return ""
				})
			}
		}
		if d := s.agents[n].doing; d == answered || d == refused {
			on("the answer is lost", true, func(s *system, n int) string {
				s.left.lost--
				s.agents[n].answer, s.agents[n].doing = snapshot{}, idle
				return ""
			})
		}
	}
}
