package server

import (
	"cmp"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// controllers returns the state of the drivers' Controller services.
func (s *Server) controllers(drivers []manager.DriverStatus) map[state.DriverName]ControllerStatus {
	all := map[state.DriverName]ControllerStatus{}
	for _, d := range drivers {
		if s.cfg.Controller == nil || d.Builtin {
			continue
		}
		if c := s.cfg.Controller(d.Name); c != nil {
			all[d.Name] = *c
		}
	}
	return all
}

// explainController says which endpoint serves the driver's Controller service, and what is wrong with it. It names
// the other sockets that register the driver's name: one may be its controller's.
func (f Facts) explainController(e *Explanation, d manager.DriverStatus) {
	if d.Builtin {
		return
	}
	name := state.DriverName(e.Name)
	c, known := f.Controllers[name]
	switch {
	case known && c.Endpoint != "" && c.Up:
		e.add("controller", "up for %s, generation %d, version %s, at %s", f.ago(c.Since), c.Generation,
			cmp.Or(c.Version, "unknown"), c.Endpoint)
	case known && c.Endpoint != "":
		e.worsen(Waiting)
		e.add("because", "its controller at %s is away: %s", c.Endpoint, c.Problem)
		e.add("next", "claims, snapshots and attachments go on automatically when it answers; mounts do not wait for it")
		e.add("you can", "start the controller, and see its log")
	case known && !c.Up && d.Up && f.waitForController(name):
		e.worsen(Stuck)
		e.add("because", "it serves no Controller service at %s, and claims wait for one", d.Endpoint)
		e.add("you can", "%s", f.nameController(name))
	case known && !c.Up && d.Up:
		e.add("controller", "none: %s", c.Problem)
	}
	for _, s := range f.Sockets {
		if s.Driver == name && d.Up && s.State == socketWaits {
			e.worsen(Working)
			e.add("but", "a second socket registers the name and waits: %s: %s", s.Path, s.Problem)
			e.add("you can", "if that is the driver's controller, end its registrar and name its endpoint: csi-volmgr driver "+
				"register %s --controller=%s", d.Endpoint, cmp.Or(s.Endpoint, "ENDPOINT"))
		}
	}
}

// socketWaits is the state of a registration socket whose driver's name another one has.
const socketWaits = "waiting"

// waitForController reports whether a claim waits for a Controller service of the driver.
func (f Facts) waitForController(name state.DriverName) bool {
	for _, c := range f.Claims {
		if c.Cause.Code == state.NoController && c.Cause.Of == string(name) {
			return true
		}
	}
	return false
}

// nameController says how the endpoint of a driver's controller is named, or what to do without one.
func (f Facts) nameController(name state.DriverName) string {
	d, _ := f.driver(name)
	return fmt.Sprintf("name its controller's endpoint: csi-volmgr driver register %s --controller=ENDPOINT; if a "+
		"registrar registers the driver, end the daemon and start it with the endpoint (in the configuration file: "+
		"driver-controller): csi-volmgr run --driver-controller=%s=ENDPOINT; if the driver has no controller, make the "+
		"volume with the vendor's tool and apply a PersistentVolume: docs/drivers.md", cmp.Or(d.Endpoint, "SOCKET"), name)
}

// startController says how to find out why a controller does not answer.
func startController(name state.DriverName) string {
	return fmt.Sprintf("start the driver's controller, or see why it does not answer: csi-volmgr explain driver %s", name)
}

// forgetIfGone adds how a claim that is being deleted is forgotten if its driver is gone.
func forgetIfGone(c ClaimStatus) string {
	if c.Phase != "Deleting" {
		return ""
	}
	return fmt.Sprintf("; if it is gone for good: csi-volmgr forget pvc %s -n %s --driver-gone --reason=TEXT", c.Name,
		c.Namespace)
}

// attacherDown reports whether the step waits for the driver's controller at an endpoint of its own.
func (s step) attacherDown() bool { return s.code == plan.AttacherDown }

// reachable reports whether the step's driver can be called, or waits only for its controller.
func (s step) reachable(f Facts) bool {
	d, known := f.driver(s.driver)
	return s.spec.Builtin || known && d.Up || s.attacherDown()
}
