package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stuckAfter is the number of consecutive failures after which a step counts as stuck.
const stuckAfter = 3

// step is the current step of one volume, for one pod or as a whole. It is the common
// form of a pod's and a volume's status.
type step struct {
	kind     plan.Kind // None if nothing has to be done
	inFlight bool
	since    time.Time // when the call or the wait for it began
	progress string    // of the call in flight, in a sentence
	reason   string    // why the call is not made, in one sentence
	code     plan.Code // reason for programs
	retry    state.Retry

	driver state.DriverName
	spec   state.Spec
	target string
	// unmount is the progress of a removal that does not succeed; nil for other steps.
	unmount *plan.UnmountProgress
	// mountedBy are the pods that have the volume mounted, sorted by name.
	mountedBy []state.Pod
	id        state.VolumeID
	// other is the pod whose use of an exclusive volume blocks this one.
	other state.Pod
	// ends has the words that end pods of other origins.
	ends Ends
	// unreached: the driver's mounts do not reach this node.
	unreached bool
}

func (s step) pending() bool { return s.kind != plan.None || s.reason != "" || s.retry.Attempts > 0 }

func (s step) same(o step) bool {
	return s.kind == o.kind && s.code == o.code && s.retry == o.retry
}

// dead reports whether the stage is dead while pods have the volume mounted.
func (s step) dead() bool { return s.code == plan.DeadMount }

// operator reports whether the step waits for an operator.
func (s step) operator() bool { return s.code == plan.Unrecorded }

// unreadable reports whether nothing is done because the volume's record cannot be read.
func (s step) unreadable() bool { return s.code == plan.NoRecord }

// removes reports whether the step removes something.
func (s step) removes() bool { return s.kind.Removes() }

func stepOfPod(f Facts, uid state.PodUID, v manager.PodVolumeStatus) step {
	s := step{
		kind: v.Step, since: v.Since, reason: v.BlockedBy, code: v.Code, retry: v.Retry, driver: v.Driver, target: v.HostPath,
		ends: f.Ends, id: v.ID,
	}
	if vs, ok := f.volume(v.ID); ok {
		s.about(vs, uid)
		c := vs.Call
		s.inFlight = c.Kind != plan.None && c.Kind == v.Step && (c.Pod == "" || c.Pod == uid)
		s.progress = vs.Progress
		if c := vs.Unmount; c != nil && c.Kind == v.Step && (c.Pod == "" || c.Pod == uid) {
			s.unmount = c
		}
	}
	return s
}

func stepOfVolume(f Facts, v manager.VolumeStatus) step {
	s := step{since: v.Since, driver: v.Volume.Spec.Driver, unmount: v.Unmount, ends: f.Ends}
	op := plan.Op{Kind: v.Held.Step, Pod: v.Held.Pod}
	if v.Call.Kind != plan.None {
		op, s.inFlight, s.progress = v.Call, true, v.Progress
	} else {
		s.reason, s.code = v.Held.Reason, v.Held.Code
	}
	s.about(v, op.Pod)
	s.kind, s.retry = op.Kind, op.Retry(v.Volume)
	if s.kind == plan.None && v.Volume.ExpandFailed != nil {
		s.kind, s.retry = plan.Expand, v.Volume.ExpandFailed.Value()
	}
	return s
}

// about adds the record's facts about the volume and the pod's mount of it.
func (s *step) about(v manager.VolumeStatus, uid state.PodUID) {
	s.spec = v.Volume.Spec.Value()
	if m, ok := v.Volume.Mounts[uid]; ok {
		s.target = m.Target
	}
	s.mountedBy = podsWithMount(v.Volume)
	if !s.spec.Exclusive() {
		return
	}
	for other, m := range v.Volume.Mounts { // at most one, because the volume is exclusive
		if other != uid && m.Phase != state.Absent {
			s.other = m.Pod
		}
	}
}

// podsWithMount returns the pods that have v mounted, sorted by name.
func podsWithMount(v state.Volume) (pods []state.Pod) {
	return podsIf(v, func(m state.Mount) bool {
		return m.Phase == state.Present || m.Phase == state.Entering && m.Seen.Mounted
	})
}

// podsOf returns the pods that may have v mounted, sorted by name.
func podsOf(v state.Volume) []state.Pod {
	return podsIf(v, func(m state.Mount) bool { return m.Phase != state.Absent })
}

func podsIf(v state.Volume, has func(state.Mount) bool) (pods []state.Pod) {
	for _, m := range v.Mounts {
		if has(m) {
			pods = append(pods, m.Pod)
		}
	}
	slices.SortFunc(pods, func(a, b state.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// explain adds the chain that starts at the step: step, because, not because, next, you
// can.
func (s step) explain(f Facts, e *Explanation) {
	d, _ := f.driver(s.driver)
	up := s.reachable(f)
	s.unreached = d.Unreached != ""
	e.worsen(s.verdict(up))
	e.add("step", "%s", s.line(f.Now))
	s.explainCauses(f, e, up)
	if s.removes() && !s.inFlight && s.retry.Attempts == 0 {
		for _, n := range f.NotReady {
			e.add("because", "%s", n)
		}
	}
	if up && !s.spec.Builtin && !s.inFlight && !s.unreadable() && !s.attacherDown() {
		e.add("not because", "driver %s is down: it is up for %s%s", s.driver, f.ago(d.Since), f.otherVolumes(s))
	}
	if s.unmount != nil {
		e.add("unmount", "%s", s.ladderText(f.Now))
	}
	e.add("next", "%s", s.next(f.Now, up))
	a := s.advice()
	if !up && !s.inFlight && s.driver != "" && !s.unreadable() {
		a = f.startDriver(s.driver)
	}
	if a != "" && !slices.Contains(e.Lines, Line{Label: "you can", Text: a}) {
		e.add("you can", "%s", a)
	}
}

// verdict returns the verdict on this step alone.
func (s step) verdict(up bool) string {
	switch {
	case s.inFlight:
		return Working
	case s.unreadable():
		return Stuck
	case !up, s.attacherDown():
		return Waiting
	case s.operator(), s.dead(), s.code == plan.NoProgram, s.retry.Stray > 0, s.unreached && s.noEffect(),
		s.retry.Final, s.retry.Refused, !s.retry.Reason.Transient(), refused(s.retry),
		s.retry.Attempts >= stuckAfter && s.retry.Reason != state.ServerAway:
		return Stuck
	case s.retry.Attempts > 0:
		return Working
	case s.reason != "":
		return Waiting
	default:
		return Working
	}
}

// line describes the step in a few words.
func (s step) line(now time.Time) string {
	name := s.kind.String()
	if name == "" {
		name = "nothing"
	}
	switch {
	case s.inFlight && s.retry.Attempts > 0:
		return fmt.Sprintf("%s, call in flight for %s; before it %s", name, Age(s.since, now), tries(s.retry, now))
	case s.inFlight:
		return fmt.Sprintf("%s, call in flight for %s", name, Age(s.since, now))
	case s.retry.Attempts > 0:
		return fmt.Sprintf("%s, %s", name, tries(s.retry, now))
	case s.since.IsZero():
		return name + ", not begun"
	default:
		return fmt.Sprintf("%s, not begun, waiting for %s", name, Age(s.since, now))
	}
}

// next says when the step will be made.
func (s step) next(now time.Time, up bool) string {
	switch {
	case s.inFlight:
		return "the call ends or times out; a call without an answer is repeated"
	case s.unreadable():
		return nextUnreadable
	case !up:
		return "continues automatically as soon as the driver registers"
	case s.attacherDown():
		return "continues automatically as soon as the driver's controller answers"
	case s.dead():
		return "staged again automatically as soon as no pod has it mounted"
	case s.code == plan.NoProgram:
		return "continues automatically as soon as it is installed"
	case s.operator():
		return "not automatically: when that mount is gone, or an operator says that no pod uses it"
	case s.retry.Final:
		return "not automatically: when the driver registers again, what pods want changes, or the volume is staged anew"
	case s.spec.Builtin && (s.retry.Refused || !s.retry.Reason.Transient()) && s.retry.NotBefore.After(now):
		return "tried again in " + Age(now, s.retry.NotBefore) + ", which helps only after the cause is fixed"
	case s.retry.NotBefore.After(now):
		return "retried automatically in " + Age(now, s.retry.NotBefore)
	default:
		return "continues automatically as soon as what it waits for happens"
	}
}

// otherVolumes says how many other volumes of the driver are mounted as wanted.
func (f Facts) otherVolumes(s step) string {
	fine := 0
	for _, v := range f.Volumes {
		if v.Volume.Spec.Driver == s.driver && v.Volume.Spec.Handle != s.spec.Handle && !v.Held.Waits() &&
			v.Call.Kind == plan.None && v.Quarantined == "" {
			fine++
		}
	}
	if fine == 0 {
		return ""
	}
	return fmt.Sprintf("; %s of it %s as wanted", count(fine, "other volume"), are(fine))
}

// Failure returns the last failure in r as one sentence with its gRPC code.
func Failure(r state.Retry) string {
	if r.First != "" {
		first := r.First
		r.First = ""
		return Failure(r) + "; before that: " + first
	}
	switch {
	case r.Error == "" && r.Code == "":
		return r.Call + " failed"
	case r.Error == "":
		return r.Call + " answered " + r.Code
	case r.Code == "":
		return r.Call + " failed: " + r.Error
	case r.Unanswered:
		return r.Call + " got no answer (" + r.Code + "): " + r.Error
	default:
		return r.Call + " answered " + r.Code + ": " + r.Error
	}
}

func tries(r state.Retry, now time.Time) string {
	if r.Attempts == 1 {
		return "failed once, " + Age(r.Since, now) + " ago"
	}
	return fmt.Sprintf("failed %d times since %s ago", r.Attempts, Age(r.Since, now))
}

// doneOf lists the facts of a volume that are present.
func doneOf(v state.Volume) string {
	var done []string
	if v.Attach.Phase == state.Present {
		done = append(done, "attached")
	}
	if v.Stage.Phase == state.Present {
		done = append(done, "staged at "+v.Spec.StagePath)
	}
	mounts := 0
	for _, m := range v.Mounts {
		if m.Phase == state.Present {
			mounts++
		}
	}
	if mounts > 0 {
		done = append(done, "mounted for "+count(mounts, "pod"))
	}
	return strings.Join(done, ", ")
}

// title names a volume by the names that people know.
func (f Facts) title(s state.Spec) string {
	switch {
	case s.Builtin:
		return fmt.Sprintf("%q, %s", s.Name, s.Driver)
	case s.Claim != "":
		return fmt.Sprintf("%s of claim %s, driver %s, handle %q", s.Name, s.Claim, s.Driver, s.Handle)
	default:
		return fmt.Sprintf("%s, driver %s, handle %q", s.Name, s.Driver, s.Handle)
	}
}

func (f Facts) titleOf(v manager.PodVolumeStatus) string {
	names := strings.Join(v.Names, ", ")
	switch {
	case v.Claim != "" && v.Driver != "":
		return fmt.Sprintf("%q: claim %s, driver %s", names, v.Claim, v.Driver)
	case v.Claim != "":
		return fmt.Sprintf("%q: claim %s", names, v.Claim)
	case v.Driver != "":
		return fmt.Sprintf("%q: %s", names, v.Driver)
	default:
		return fmt.Sprintf("%q", names)
	}
}
