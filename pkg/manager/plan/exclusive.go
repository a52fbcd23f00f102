package plan

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// releasesExclusive reports whether what may have been made of a ReadWriteOncePod volume for
// pod goes, so that another can have it: one that uses it, or else the first of
// those for which it may have been made, as after a takeover of what a kubelet had
// begun for several. Each would wait for the others for good. One that has it without
// a record uses it too.
func (c *chooser) releasesExclusive(w state.Want, v state.Volume, pod state.PodUID) bool {
	if !exclusive(w, v) {
		return false
	}
	for other := range c.doubt.Made {
		if other != pod {
			return true
		}
	}
	for other, m := range v.Mounts {
		if other != pod && (used(v, m) || m.Phase == state.Entering && other < pod) {
			return true
		}
	}
	return false
}

// exclusive: a record that was taken over may not know it.
func exclusive(w state.Want, v state.Volume) bool { return v.Spec.Exclusive() || w.Spec.Exclusive() }
