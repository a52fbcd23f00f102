package server

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// explainCauses adds the reasons why the step is not done: because, last error.
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

// causes returns the reasons why the step is not done, a sentence each; none while its
// call is in flight. failed reports whether the first is the last failure.
func (s step) causes(f Facts, up bool) (all []string, failed bool) {
	switch {
	case s.inFlight:
		return nil, false
	case !up && s.driver != "":
		return []string{f.driverWhy(s.driver)}, false
	case s.attacherDown():
		return []string{s.reason}, false
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

// Cause says in one sentence why a volume of a pod is not as wanted, with the text of
// its explanation; "" if it is, or if a call is in flight. Events use this text. failed
// reports whether it is the last failure.
func (f Facts) Cause(uid state.PodUID, v manager.PodVolumeStatus) (text string, failed bool) {
	if v.Unresolved() {
		return v.BlockedBy, false
	}
	if s := stepOfPod(f, uid, v); s.pending() {
		return s.firstCause(f)
	}
	return "", false
}

// firstCause returns the step's first cause, "" if there is none, and whether it is the
// last failure.
func (s step) firstCause(f Facts) (text string, failed bool) {
	all, failed := s.causes(f, s.reachable(f))
	if len(all) == 0 {
		return "", false
	}
	return all[0], failed
}

// CauseLeft says in one sentence why a volume that no pod has or wants is still on the
// node, with the text of its explanation. It returns "" while a call is in flight and
// after a failed call, which is reported when it fails.
func (f Facts) CauseLeft(v manager.VolumeStatus) string {
	s := stepOfVolume(f, v)
	if cause, failed := s.firstCause(f); s.pending() && !failed {
		return cause
	}
	return ""
}

// Why returns Cause or, if that is "", the last failure or the mount's drift. The
// status page shows this text.
func (f Facts) Why(uid state.PodUID, v manager.PodVolumeStatus) string {
	cause, _ := f.Cause(uid, v)
	if cause == "" && v.Retry.Attempts > 0 {
		cause = Failure(v.Retry)
	}
	return cmp.Or(cause, v.Drift)
}

// Unwanted returns the volumes that no pod has or wants any more.
func (f Facts) Unwanted() []manager.VolumeStatus {
	had := map[state.VolumeID]bool{}
	for _, p := range f.Pods {
		for _, v := range p.Volumes {
			had[v.ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(f.Volumes), func(v manager.VolumeStatus) bool { return had[v.Volume.ID] })
}

// WhyLeft returns CauseLeft or, if that is "", the last failure.
func (f Facts) WhyLeft(v manager.VolumeStatus) string {
	if cause := f.CauseLeft(v); cause != "" {
		return cause
	}
	if s := stepOfVolume(f, v); s.retry.Attempts > 0 {
		return Failure(s.retry)
	}
	return ""
}

// VolumeSentence returns a sentence about a pod's volume that starts with its names.
func VolumeSentence(names, sentence string) string {
	return fmt.Sprintf("volume %s: %s", names, sentence)
}
