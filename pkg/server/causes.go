package server

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// explainCauses adds why the step is not done: because, last error.
func (s step) explainCauses(f Facts, e *Explanation, up bool) {
	if s.inFlight && s.progress != "" {
		e.add("progress", "%s", s.progress)
	}
	causes, failed := s.causes(f, up)
	for _, cause := range causes {
		e.add("because", "%s", cause)
	}
	if s.retry.Attempts > 0 && !failed {
		e.add("last error", "%s", Failure(s.retry))
	}
	if d, _ := f.driver(s.driver); s.noEffect() && d.Unreached != "" {
		e.add("because", "%s: its mounts do not reach this node", d.Unreached)
	}
}

// causes says why the step is not done, a sentence each, none while it is; failed reports
// whether the first is the last failure.
func (s step) causes(f Facts, up bool) (all []string, failed bool) {
	switch {
	case s.inFlight:
		return nil, false
	case !up && s.driver != "":
		return []string{f.driverWhy(s.driver)}, false
	}
	if failed = s.retry.Attempts > 0; failed {
		all = append(all, Failure(s.retry))
	}
	if state.CodeOf(s.retry.Call, s.retry.Code).Earlier {
		all = append(all, fmt.Sprintf("with this code the driver says that an earlier call for the volume still runs, begun "+
			"at least %s ago", f.ago(s.retry.Since)))
	}
	if s.reason != "" && (s.retry.Attempts == 0 || s.retry.Final) {
		all = append(all, s.reason)
	}
	return all, failed
}

// Cause says in one sentence why a volume of a pod is not as wanted, in the
// words of its explanation; "" where it is, or where a call is in flight. It is
// the text of events. failed reports whether that is the last failure.
func (f Facts) Cause(uid state.PodUID, v manager.PodVolumeStatus) (text string, failed bool) {
	if v.Unresolved() {
		return v.BlockedBy, false
	}
	if s := stepOfPod(f, uid, v); s.pending() {
		return s.firstCause(f)
	}
	return "", false
}

// firstCause is the first of the step's causes, "" where it has none, and whether that is the
// last failure.
func (s step) firstCause(f Facts) (text string, failed bool) {
	d, known := f.driver(s.driver)
	all, failed := s.causes(f, s.spec.Builtin || known && d.Up)
	if len(all) == 0 {
		return "", false
	}
	return all[0], failed
}

// CauseLeft says in one sentence why a volume that no pod has or wants any more is
// here still, in the words of its explanation; "" where a call is in flight, or has
// failed, which is told when it does.
func (f Facts) CauseLeft(v manager.VolumeStatus) string {
	s := stepOfVolume(f, v)
	if cause, failed := s.firstCause(f); s.pending() && !failed {
		return cause
	}
	return ""
}

// Why is Cause, the last failure while the call is made again, and how the mount
// is not as it was made. It is the text of the status page.
func (f Facts) Why(uid state.PodUID, v manager.PodVolumeStatus) string {
	cause, _ := f.Cause(uid, v)
	if cause == "" && v.Retry.Attempts > 0 {
		cause = Failure(v.Retry)
	}
	return cmp.Or(cause, v.Drift)
}

// Left are the volumes that no pod has or wants any more.
func (f Facts) Left() []manager.VolumeStatus {
	had := map[state.VolumeID]bool{}
	for _, p := range f.Pods {
		for _, v := range p.Volumes {
			had[v.ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(f.Volumes), func(v manager.VolumeStatus) bool { return had[v.Volume.ID] })
}

// WhyLeft is CauseLeft, and the last failure.
func (f Facts) WhyLeft(v manager.VolumeStatus) string {
	if cause := f.CauseLeft(v); cause != "" {
		return cause
	}
	if s := stepOfVolume(f, v); s.retry.Attempts > 0 {
		return Failure(s.retry)
	}
	return ""
}

// VolumeSentence is a sentence about one of a pod's volumes, which it names.
func VolumeSentence(names, sentence string) string {
	return fmt.Sprintf("volume %s: %s", names, sentence)
}
