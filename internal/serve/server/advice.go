package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// refused reports whether a failed call's code is one that only a person can resolve.
func refused(r state.Retry) bool { return state.CodeOf(r.Call, r.Code).NeedsPerson }

// advice returns what a person can do about the step of a driver that is up; "" if only waiting helps.
func (s step) advice() string {
	switch {
	case s.inFlight:
		return ""
	case s.code == plan.NoProgram:
		return adviceProgram
	case s.attacherDown():
		return startController(s.driver)
	case s.unreadable():
		return adviceUnreadable(s.id)
	case s.dead():
		return s.adviceDead()
	case s.operator():
		return "see what uses that mount, and unmount it: csi-volmgr gc --dry-run lists all such mounts, csi-volmgr who " +
			"PATH shows who uses one; or apply again the pod that it belongs to; or state that no pod uses any of them: " +
			"csi-volmgr journal accept --reason=TEXT"
	case s.other.Name != "":
		return "delete the pod that has it once its containers have stopped: " + s.ends.of(s.other)
	case s.retry.Attempts > 0:
		return s.adviceOnFailure()
	case s.removes():
		pods := s.deletions()
		if pods != "" {
			pods = ": " + pods
		}
		return "delete the pod once its containers have stopped, or wait for the sources; nothing is unmounted before that" +
			pods
	default:
		return ""
	}
}

// stageGone reports whether a stage is lost and the driver refuses to stage again while
// pods have the volume mounted. An answer about the request or the storage has another
// cause.
func (s step) stageGone() bool {
	return s.kind == plan.Stage && len(s.mountedBy) > 0 && s.retry.Attempts >= stuckAfter &&
		state.CodeOf(s.retry.Call, s.retry.Code).Conflict
}

// adviceDead returns the advice for pods that have a dead mount.
func (s step) adviceDead() string {
	return "stop the containers of the pods that have it mounted, and delete these pods; then it is mounted again " +
		"for the next pod: " + s.deletions()
}

// deletions returns the commands that delete the pods that have the volume mounted.
func (s step) deletions() string {
	var all []string
	pods := s.mountedBy
	for _, p := range pods[:min(len(pods), maxNamed)] {
		all = append(all, s.ends.of(p))
	}
	if more := len(pods) - maxNamed; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// noEffect reports whether the driver answered OK but the kernel shows no effect.
func (s step) noEffect() bool {
	return s.retry.Reason == state.NoEffect
}

// nextUnreadable says what ends the wait for a record that cannot be read.
const nextUnreadable = "not automatically: the volume counts as in use and is not touched until its record can be read"

// adviceUnreadable is the advice for a volume whose record cannot be read.
func adviceUnreadable(id state.VolumeID) string {
	return fmt.Sprintf("stop the daemon and take an older record from the spare copy: csi-volmgr journal repair; if a "+
		"newer csi-volmgr wrote the record, run that version; otherwise delete the volume's pods, unmount what "+
		"csi-volmgr gc --dry-run shows of it; then drop the record: csi-volmgr forget '%s' --even-mounted", id)
}

// adviceProgram is the advice for a kind whose program is not installed.
const adviceProgram = "install the program: csi-volmgr doctor says what to install"

// adviceUnreached is the advice for a driver whose mounts stay in its own mount
// namespace.
const adviceUnreached = "mount the kubelet's directory into the driver's container with mountPropagation: " +
	"Bidirectional (docker and podman: bind-propagation=rshared), on a shared mount of this node, and restart the " +
	"driver; see also csi-volmgr doctor"

// adviceOnFailure returns the advice for the step and the gRPC code of its last call.
func (s step) adviceOnFailure() string {
	switch {
	case s.retry.Stray > 0:
		return fmt.Sprintf("move the files out of %s (%s): they are on the node's own disk, not on the volume, and "+
			"csi-volmgr does not delete them; see ls -la %s", s.target, count(s.retry.Stray, "file"), s.target)
	case s.spec.Builtin:
		return s.adviceOnBuiltin()
	case s.retry.Reason == state.ServerAway:
		return adviceAway
	case s.noEffect() && s.unreached:
		return adviceUnreached
	case s.noEffect():
		return fmt.Sprintf("see the log of driver %s: it answered OK, but the kernel shows no effect", s.driver)
	case s.retry.Reason == state.Unreadable:
		return fmt.Sprintf("check which program serves driver %s: its answers cannot be decoded", s.driver)
	}
	if notCalled(s.retry) {
		return fmt.Sprintf("correct what the error names: driver %s was not called", s.driver)
	}
	if s.stageGone() {
		return "the stage is lost, and the driver does not stage again while pods have the volume mounted: stop their " +
			"containers and delete the pods; then it is staged again: " + s.deletions()
	}
	code := state.CodeOf(s.retry.Call, s.retry.Code)
	if ref := s.secret(); code.Unauthorized && ref.Name != "" {
		return fmt.Sprintf("check whether secret %s/%s has credentials that the storage accepts", ref.Namespace, ref.Name)
	}
	if code.Advice != "" {
		return strings.NewReplacer("{volume}", s.spec.Name, "{handle}", s.spec.Handle, "{driver}",
			string(s.driver)).Replace(code.Advice)
	}
	if s.removes() && s.target != "" {
		return "find who uses it: csi-volmgr who " + s.target
	}
	return fmt.Sprintf("see the log of driver %s at the time of the failure", s.driver)
}

// notCalled reports whether a call to a CSI driver failed before it was made.
func notCalled(r state.Retry) bool {
	return r.Code == "" && (r.Reason == state.NoObject || r.Reason == state.BadSource)
}

// secret returns the reference of the secret that the step's call sends.
func (s step) secret() state.SecretRef {
	switch s.kind {
	case plan.Attach, plan.Detach:
		return s.spec.AttachRef
	case plan.Stage:
		return s.spec.StageRef
	case plan.Publish, plan.Republish:
		return s.spec.PublishRef
	case plan.Expand:
		return s.spec.ExpandRef
	default:
		return state.SecretRef{}
	}
}

// driverWhy says why a driver cannot be called: in the manager's words, or in those of
// its registration socket if the driver was never up. The text contains no times,
// because an event whose text changes counts as a new event.
func (f Facts) driverWhy(name state.DriverName) string {
	d, _ := f.driver(name)
	for _, s := range f.Sockets {
		if s.Driver == name && s.Problem != "" && d.Generation == 0 {
			return fmt.Sprintf("driver %s is not registered: %s: %s", name, s.Path, s.Problem)
		}
	}
	return cmp.Or(d.Problem, fmt.Sprintf("driver %s has not registered since the daemon started", name))
}

// maxNamed bounds how many volumes or pods an explanation names.
const maxNamed = 5

func (f Facts) explainDriver(e *Explanation) {
	name := state.DriverName(e.Name)
	d, known := f.driver(name)
	users := f.usersOf(name)
	claims := f.claimsWaiting(name)
	if !known && len(users)+claims == 0 && !f.hasSocket(name) {
		f.unknown(e)
		for _, s := range f.Sockets {
			if s.Problem != "" {
				e.add("perhaps", "it is behind a socket that is not registered: %s: %s", s.Path, s.Problem)
			}
		}
		return
	}
	f.explainHealth(e, "driver "+e.Name)
	e.add("wanted by", "%s on this node%s", count(len(users), "volume"), andClaims(claims))
	if known && d.Up {
		e.add("done", "up for %s, generation %d, version %s%s", f.ago(d.Since), d.Generation, cmp.Or(d.Version, "unknown"),
			at(d.Endpoint))
		if d.Problem != "" {
			e.worsen(Working)
			e.add("but", "%s", d.Problem)
		}
		if len(d.Lacks) > 0 {
			e.worsen(Stuck)
			e.add("because", "%s is not installed on this node: no volume of this kind can be mounted",
				strings.Join(d.Lacks, ", "))
			e.add("you can", "%s", adviceProgram)
		}
		if d.Unreached != "" {
			e.worsen(Stuck)
			e.add("because", "%s: its mounts do not reach this node", d.Unreached)
			e.add("you can", "%s", adviceUnreached)
		}
		if d.Limit > 0 {
			e.add("limit", "%s at once, %d in flight: fewer after an overload, more if many "+
				"calls take no longer than one", count(d.Limit, "call"), d.Calls)
		}
		f.explainNodeID(e)
	} else {
		e.worsen(Waiting)
		e.add("because", "%s", f.driverWhy(name))
		e.add("next", "its volumes go on at once, automatically, when it registers")
		if name == EmbeddedDriver && d.Generation == 0 {
			e.add("you can", "%s", f.startDriver(name))
		} else {
			e.add("you can", "start the driver and its node-driver-registrar, and see their logs; sockets seen: csi-volmgr get "+
				"drivers")
		}
	}
	f.explainController(e, d)
	f.explainUsers(e, users)
}

// SourceDrivers is the source of the problems of registered drivers.
const SourceDrivers = "drivers"

// explainNodeID says that the driver's node id has changed while its volumes are attached.
func (f Facts) explainNodeID(e *Explanation) {
	for _, p := range f.Problems {
		if p.Source == SourceDrivers && p.Object == "driver "+e.Name {
			e.worsen(Stuck)
			e.add("but", "%s", p.Message)
		}
	}
}

// explainUsers names up to maxNamed of the driver's volumes that are not as wanted.
func (f Facts) explainUsers(e *Explanation, users []step) {
	left := 0
	for _, s := range users {
		switch {
		case !s.pending():
		case left < maxNamed:
			left++
			e.worsen(s.verdict(true))
			text := s.line(f.Now)
			if s.retry.Attempts > 0 {
				text += "; " + Failure(s.retry)
			} else if s.reason != "" {
				text += "; " + s.reason
			}
			e.add("volume", "%s: %s", s.spec.Name, text)
		default:
			left++
		}
	}
	if left > maxNamed {
		e.add("volume", "and %d more: csi-volmgr get volumes", left-maxNamed)
	}
}

func (f Facts) usersOf(name state.DriverName) []step {
	var out []step
	for _, v := range f.Volumes {
		if v.Volume.Spec.Driver == name {
			out = append(out, stepOfVolume(f, v))
		}
	}
	return out
}

// claimsWaiting counts the claims that wait for the driver.
func (f Facts) claimsWaiting(name state.DriverName) (n int) {
	for _, c := range f.Claims {
		codes := []state.CauseCode{state.DriverAway, state.DriverSilent, state.NoController, state.ControllerAway}
		if slices.Contains(codes, c.Cause.Code) && c.Cause.Of == string(name) {
			n++
		}
	}
	return n
}

func andClaims(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %s", count(n, "claim"))
}

func (f Facts) hasSocket(name state.DriverName) bool {
	return slices.ContainsFunc(f.Sockets, func(s SocketStatus) bool { return s.Driver == name })
}

func at(endpoint string) string {
	if endpoint == "" {
		return ", in this process"
	}
	return ", at " + endpoint
}
