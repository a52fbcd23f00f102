package events

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// waitPatience is how long a volume may wait for something that is no call
	// before the writer makes an event of it, and the least time before it makes another,
	// for a volume that waits for something else then. The kubelet gives a pod's volumes
	// as long (2 m 3 s): most waits have ended then.
	waitPatience = 2 * time.Minute
	// lookPause is the least time between two looks for what waits.
	lookPause = 10 * time.Second
	// maxReported bounds the events of one look, so 1 a second of a node whose 1,000
	// pods wait for one driver. Those that waited longest come first, the others at
	// the looks that follow, if they wait still.
	maxReported = 10
	// mended is the event's text when a mount that had changed is again as it was made.
	mended = "its mount is as it was made again"
)

// subject is a volume of a pod under the pod's names for it, or one that is left of pods that are gone.
type subject struct {
	pod   state.PodUID
	names string
	left  state.VolumeID // where pod is ""
}

// finding is what a look found of a volume that is not as wanted.
type finding struct {
	subject
	volume state.VolumeID // "" where it is not known
	reason string
	// wait is the sentence that says what it waits for; "" where it waits for
	// nothing but its next call, of whose failures it is told as they happen.
	wait string
	// drift says how its mount is not as it was made; "" where it is.
	drift string
	// mounted: there is a mount that this can be said about.
	mounted bool
}

// reported is the last event of a volume, and since when the volume waits.
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

// waits remembers the events of volumes that wait, or whose mounts are not as
// they were made.
type waits map[subject]reported

// look returns the notices to write now, and whether more are due later
// although nothing changes.
func (w waits) look(f server.Facts, patience time.Duration) (notices []notice, more bool) {
	found := findings(f)
	w.follow(found, f.Now)
	due := slices.DeleteFunc(slices.Clone(found), func(x finding) bool {
		s := w[x.subject]
		return x.drift == s.drift && (x.wait == s.wait || f.Now.Sub(s.since) < patience || f.Now.Sub(s.at) < patience)
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

// follow notes since when what is found waits, and forgets what does not any more.
func (w waits) follow(found []finding, now time.Time) {
	was := maps.Clone(w)
	clear(w)
	for _, x := range found {
		s := was[x.subject]
		if !x.mounted {
			s.drift = "" // what is gone is not mended
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

// notice returns the event that is due for x and notes it; the event about its mount comes first.
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

// findings are the volumes of pods, and those left of pods that are gone.
func findings(f server.Facts) []finding {
	by := make(map[state.VolumeID]manager.VolumeStatus, len(f.Volumes))
	for _, v := range f.Volumes {
		by[v.Volume.ID] = v
	}
	var all []finding
	for _, p := range f.Pods {
		for _, v := range p.Volumes {
			of := f // each is looked up and not sought, since there may be thousands
			if of.Volumes = nil; by[v.ID].Volume.Spec != nil {
				of.Volumes = []manager.VolumeStatus{by[v.ID]}
			}
			x := finding{
				subject: subject{pod: p.Pod.UID, names: strings.Join(v.Names, ", ")}, volume: v.ID,
				reason: waitReason(v),
			}
			if wait, failed := of.Cause(p.Pod.UID, v); !failed { // a failure has had its event
				x.wait = wait
			}
			if x.mounted = p.Listed && v.Mounted; x.mounted {
				x.drift = v.Drift
			}
			all = append(all, x)
		}
	}
	for _, v := range f.Left() {
		all = append(all, finding{
			subject: subject{left: v.Volume.ID}, volume: v.Volume.ID, wait: f.CauseLeft(v),
			reason: callReason(v.Held.Step, true, v.Volume.Spec.Mode == state.Block),
		})
	}
	return all
}

// waitReason is the reason of the event of a wait.
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
