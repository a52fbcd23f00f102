package metrics

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// What a volume waits for. Sentences tell it to people; these few words bound the number of series.
const (
	waitsForDriver = "driver"  // for the driver to come up
	waitsForPause  = "pause"   // for the end of the back-off after a failure
	waitsForOther  = "another" // for what the sentence names
)

// wait is what the volumes of one series of held volumes have in common.
type wait struct {
	driver         state.DriverName
	step, waitsFor string
}

// held counts the volumes that are not as wanted and have no call under way.
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

// overdue returns how long the mount whose renewal is longest overdue has waited for it.
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
