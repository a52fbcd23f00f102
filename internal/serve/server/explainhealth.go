package server

import (
	"cmp"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// askedLong is how long a driver may be silent before the explanation says so.
const askedLong = 30 * time.Second

// explainHealth adds the conditions that the driver reports of a volume or its storage,
// and since when it has not answered. A driver's report on a volume does not change the
// verdict, because a mounted volume waits for nothing.
func (f Facts) explainHealth(e *Explanation, key string) {
	f.explainLabels(e, key)
	for _, s := range f.Stats {
		if s.Key != key {
			continue
		}
		dead := false
		if s.Health == stats.Abnormal {
			for _, c := range s.Conditions {
				who := "driver " + string(s.Driver)
				switch {
				case c.Kernel:
					who = "the kernel"
				case c.Controller:
					who = "the Controller service of " + who
				}
				e.add("health", "%s says: %s (for %s, as of %s ago)", who, c, f.ago(s.HealthSince), f.ago(s.At))
				switch {
				case c.Kernel:
					e.worsen(Stuck) // the mount cannot be used
					dead = true
				case e.Kind == "driver":
					e.worsen(Waiting)
				}
			}
		}
		if v, known := f.volume(state.VolumeID(key)); dead && known {
			e.add("you can", "%s", step{ends: f.Ends, mountedBy: podsWithMount(v.Volume)}.adviceDead())
		}
		if !s.Asking.IsZero() && f.Now.Sub(s.Asking) > askedLong {
			e.add("health", "not known: driver %s was asked %s ago and has not answered", s.Driver, f.ago(s.Asking))
		}
	}
}

// explainHealthOf does the same for the volume of a claim that is not on this node.
func (f Facts) explainHealthOf(e *Explanation, claim string) {
	for _, s := range f.Stats {
		if s.Claim == claim {
			f.explainHealth(e, s.Key)
		}
	}
}

// explainLabels warns if pods use a volume with different SELinux labels: the runtime
// relabels its files for the pod that started last.
func (f Facts) explainLabels(e *Explanation, key string) {
	v, ok := f.volume(state.VolumeID(key))
	if !ok || v.SELinux == nil || v.SELinux.Applied || len(v.SELinux.Conflicts) == 0 {
		return
	}
	var names []string
	for _, uid := range v.SELinux.Conflicts {
		names = append(names, f.podName(v.Volume, uid))
	}
	label := v.SELinux.Label
	if label == "" {
		label = "none"
	}
	e.add("warning", "conflicting SELinux labels of volume %s: %s, and another for pod %s; each pod's containers "+
		"relabel its files, and with --selinux-mount=on the second pod would wait",
		cmp.Or(v.Volume.Spec.Name, v.Volume.Spec.Handle), label, strings.Join(names, ", "))
}
