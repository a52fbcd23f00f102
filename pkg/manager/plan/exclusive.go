package plan

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// releasesExclusive reports whether pod's mount of a ReadWriteOncePod volume, whose outcome
// is unknown, is removed for the sake of another pod. The volume stays with the pod that
// uses it, with or without a record. If none does, as when a kubelet had begun it for
// several pods before the takeover, it stays with the first of them by UID: otherwise each
// would wait for the others for ever.
func (c *chooser) releasesExclusive(w state.Want, v state.Volume, pod state.PodUID) bool {
	if !exclusive(w, v) {
		return false
	}
	for other := range c.Doubt.Made {
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

// exclusive reports whether only one pod may have the volume. It also asks the wish, since
// records that were taken over lack access modes.
func exclusive(w state.Want, v state.Volume) bool { return v.Spec.Exclusive() || w.Spec.Exclusive() }
