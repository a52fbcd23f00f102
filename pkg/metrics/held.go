package metrics

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// What a volume waits for. Sentences say it to people; these words are few, so
// that the number of series is bounded.
const (
	waitsForDriver = "driver"  // that it comes up
	waitsForPause  = "pause"   // the end of one, after a failure
	waitsForOther  = "another" // what the sentence names
)

// wait is what volumes that are held have in common.
type wait struct {
	driver         state.DriverName
	step, waitsFor string
}

// held counts the volumes that are not as wanted and for which nothing is done.
func held(volumes []manager.VolumeStatus, drivers []manager.DriverStatus) map[wait]float64 {
	up := map[state.DriverName]bool{}
	for _, d := range drivers {
		up[d.Name] = d.Up
	}
	out := map[wait]float64{}
	for _, v := range volumes {
		if v.Quarantined != "" || !v.Held.Waits() {
			continue
		}
		w := wait{driver: v.Volume.Spec.Driver, step: v.Held.Step.String(), waitsFor: waitsForOther}
		_, _, failing := inspect(v.Volume)
		switch {
		case !up[w.driver]:
			w.waitsFor = waitsForDriver
		case failing:
			w.waitsFor = waitsForPause
		}
		out[w]++
	}
	return out
}

// overdue is how long the mount that should have been published anew the longest
// ago has waited for it.
func overdue(volumes []manager.VolumeStatus, now time.Time) time.Duration {
	longest := time.Duration(0)
	for _, v := range volumes {
		for _, m := range v.Volume.Mounts {
			if m.Phase == state.Present && !m.RenewAt.IsZero() {
				longest = max(longest, now.Sub(m.RenewAt))
			}
		}
	}
	return longest
}
