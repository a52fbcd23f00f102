package events

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// waitPatience is how long a volume may wait for something other than a call before the writer
	// reports it, and the least time before the writer reports that the same volume waits for something
	// else. The kubelet gives a pod's volumes as long (2 m 3 s): most waits have ended then.
	waitPatience = 2 * time.Minute
	// lookPause is the least time between two looks for waiting volumes.
	lookPause = 10 * time.Second
	// maxReported bounds the events of one look, so that a node whose 1,000 pods wait for one driver
	// writes 1 a second. The longest waits come first; the others follow at later looks if they still
	// wait.
	maxReported = 10
	// mended is the event text when a drifted mount has been restored.
	mended = "its mount is as it was made again"
)

// subject is a volume of a pod under the pod's names for it, or a leftover volume of pods that are gone.
type subject struct {
	pod   state.PodUID
	names string
	left  state.VolumeID // set if pod is ""
}

// finding is what a look found about one volume.
type finding struct {
	subject
	volume state.VolumeID // "" if it is unknown
	reason string
	// wait is the sentence that says what the volume waits for. It is "" if the volume waits only for its
	// next call: failed calls have events of their own.
	wait string
	// refused: the wait is for another pod to go, which may be never. It is reported at once.
	refused bool
	// drift says how the volume's mount differs from what was made; "" if it does not.
	drift string
	// mounted reports whether there is a mount that can drift.
	mounted bool
}

// reported is the last event about a volume, and since when the volume waits.
type reported struct {
	since, at time.Time
	wait      string
	drift     string
}

// notice is an event to be written.
type notice struct {
	subject
	volume   state.VolumeID
	reason   string
	warning  bool
	sentence string
}

// waits remembers the last events about volumes that wait or whose mounts have drifted.
type waits map[subject]reported

// look returns the notices to write now, and whether more will be due later even if nothing changes.
func (w waits) look(f server.Facts, patience time.Duration) (notices []notice, more bool) {
	found := findings(f)
	w.follow(found, f.Now)
	due := slices.DeleteFunc(slices.Clone(found), func(x finding) bool {
		s := w[x.subject]
		early := !x.refused && f.Now.Sub(s.since) < patience
		return x.drift == s.drift && (x.wait == s.wait || early || f.Now.Sub(s.at) < patience)
	})
	slices.SortStableFunc(due, func(a, b finding) int { return w[a.subject].since.Compare(w[b.subject].since) })
	for _, x := range due[:min(len(due), maxReported)] {
		notices = append(notices, w.notice(x, f.Now))
	}
	return notices, slices.ContainsFunc(found, func(x finding) bool {
		s := w[x.subject]
		return x.drift != s.drift || x.wait != s.wait
	})
}

// follow records since when the found volumes wait, and forgets those that no longer do.
func (w waits) follow(found []finding, now time.Time) {
	was := maps.Clone(w)
	clear(w)
	for _, x := range found {
		s := was[x.subject]
		if !x.mounted {
			s.drift = "" // a mount that is gone was not restored
		}
		switch {
		case x.wait == "":
			s = reported{drift: s.drift}
		case s.since.IsZero():
			s.since = now
		}
		if s != (reported{}) {
			w[x.subject] = s
		}
	}
}

// notice returns the event that is due for x and records it. The event about its mount comes first.
func (w waits) notice(x finding, now time.Time) notice {
	s := w[x.subject]
	n := notice{x.subject, x.volume, x.reason, true, x.wait}
	switch {
	case x.drift == s.drift:
		s.wait, s.at = x.wait, now
	case x.drift == "":
		n.reason, n.warning, n.sentence = reasonHealthy, false, mended
		s.drift = ""
	default:
		n.reason, n.sentence = reasonAbnormal, x.drift
		s.drift = x.drift
	}
	w[x.subject] = s
	return n
}

// findings returns the volumes of pods, and the leftover volumes of pods that are gone.
func findings(f server.Facts) []finding {
	by := make(map[state.VolumeID]manager.VolumeStatus, len(f.Volumes))
	for _, v := range f.Volumes {
		by[v.Volume.ID] = v
	}
	var all []finding
	for _, p := range f.Pods {
		for _, v := range p.Volumes {
			of := f // looked up by id, not searched for: there may be thousands
			if of.Volumes = nil; by[v.ID].Volume.Spec != nil {
				of.Volumes = []manager.VolumeStatus{by[v.ID]}
			}
			x := finding{
				subject: subject{pod: p.Pod.UID, names: strings.Join(v.Names, ", ")}, volume: v.ID,
				reason: waitReason(v),
			}
			if wait, failed := of.Cause(p.Pod.UID, v); !failed { // a failure has had its event
				x.wait, x.refused = wait, v.Code == plan.InUse || v.Code == plan.OtherLabel
			}
			if x.mounted = p.Listed && v.Mounted; x.mounted {
				x.drift = v.Drift
			}
			all = append(all, x)
		}
	}
	for _, v := range f.Unwanted() {
		all = append(all, finding{
			subject: subject{left: v.Volume.ID}, volume: v.Volume.ID, wait: f.CauseLeft(v),
			reason: callReason(v.Held.Step, true, v.Volume.Spec.Mode == state.Block),
		})
	}
	return all
}

// waitReason returns the event reason for a wait.
func waitReason(v manager.PodVolumeStatus) string {
	switch step := v.Step; {
	case step == plan.Expand:
		return reasonNoResize
	case step.Removes() && v.Phase == state.Absent: // another pod's mount has to go first
		return callReason(plan.None, true, v.Mode == state.Block)
	default:
		return callReason(step, true, v.Mode == state.Block)
	}
}
