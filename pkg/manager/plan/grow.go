package plan

import (
	"cmp"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// holdOfflineGrowth returns w without the wish to grow if the driver expands volumes only while
// no pod has them (CSI 1.13, VolumeExpansion OFFLINE) and a pod has this one. A pod whose
// mount still waits for the volume to grow does not have it yet.
func holdOfflineGrowth(w state.Want, v state.Volume, f Facts) state.Want {
	if !f.Driver.Up || !f.Driver.Offline || !grows(v, w) {
		return w
	}
	for _, m := range v.Mounts {
		if m.Phase == state.Present && !m.Waits {
			w.NoGrow = reasonOffline
		}
	}
	return w
}

// grows reports whether the volume has to be expanded on this node.
func grows(v state.Volume, w state.Want) bool {
	return v.SizeBytes != 0 && v.SizeBytes < w.SizeBytes && w.NoGrow == ""
}

// waitsToGrow reports whether a pod whose mount is made now has to wait until the volume has
// grown. A pod that already uses its mount never waits.
func waitsToGrow(v state.Volume, w state.Want, m state.Mount) bool {
	return grows(v, w) && !m.ReadOnly && !v.ExpandFailed.Value().Final
}

// Resize returns v with the changes of its size that need no call, and whether there were
// any. A volume has the wanted size if its claim says so, or if its driver has no
// NodeExpandVolume, so that a node has nothing to do. Pods stop waiting for it to grow
// if it does not grow, or cannot.
func Resize(v state.Volume, w state.Want, f Facts) (state.Volume, bool) {
	changed := false
	if v.SizeBytes == 0 && w.SizeBytes != 0 && !v.Clear() {
		v.SizeBytes, changed = cmp.Or(w.HaveBytes, w.SizeBytes), true
	}
	if v.SizeBytes < w.SizeBytes && (w.Grown || f.Driver.Up && !f.Driver.Expand) {
		v.SizeBytes, v.ExpandFailed, changed = w.SizeBytes, nil, true
	}
	w = holdOfflineGrowth(w, v, f)
	for pod, m := range v.Mounts {
		if m.Waits && !waitsToGrow(v, w, m) {
			m.Waits, changed = false, true
			v.Mounts = withMount(v.Mounts, pod, m)
		}
	}
	return v, changed
}

// expand proposes NodeExpandVolume through a pod that has the volume mounted (CSI 1.13: after Publish).
func (c *chooser) expand(w state.Want, v state.Volume) {
	switch {
	case v.SizeBytes == 0 || w.SizeBytes <= v.SizeBytes:
		return
	case !c.Driver.Up && anyWaitsToGrow(w, v): // until it is up, it is unknown whether the driver can expand it
		c.hold(Op{Kind: Expand}, reason{DriverDown, c.Driver.Why}, time.Time{})
		return
	case !c.Driver.Expand:
		return
	}
	readOnly := false
	for _, pod := range byUID(w.Pods) {
		m := v.Mounts[pod]
		switch {
		case m.Phase != state.Present:
		case w.NoGrow != "":
			c.hold(Op{Kind: Expand}, reason{NoGrow, w.NoGrow}, time.Time{})
			return
		case !m.ReadOnly:
			c.propose(Op{Kind: Expand, Pod: pod, SizeBytes: w.SizeBytes}, v.ExpandFailed)
			return
		default:
			readOnly = true
		}
	}
	if readOnly {
		c.hold(Op{Kind: Expand}, reason{readOnlySize, reasonROSize}, time.Time{})
	}
}

// anyWaitsToGrow reports whether a pod waits for the volume to grow.
func anyWaitsToGrow(w state.Want, v state.Volume) bool {
	for pod := range w.Pods {
		if v.Mounts[pod].Waits {
			return true
		}
	}
	return false
}
