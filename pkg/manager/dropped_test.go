package manager

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A removal that waits for a slot is not written if it is no longer due: a written intent is
// carried out (rule 2), although the pod is listed and has not stopped (rule 5).
func TestARemovalThatIsNotDueAnyMoreIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.Limits = plan.Limits{Node: 3, Driver: 2, Reserved: 1} })
		l.up(h)
		l.DriverUp(DriverInfo{Name: "e", MountsTarget: true}, h)
		l.SetPod(podWant("u", "u"))
		mounted(t, l, "u")
		busy := 10 * time.Minute
		h.fails(func(call string) fault {
			switch call {
			case "Publish d^v a": // it may be mounted
				return answer(state.Uncertain, "NodePublishVolume", "Unavailable")
			case "Stage d^w", "Unpublish d^u u":
				return fault{takes: busy}
			}
			return fault{}
		})
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		l.RemovePod("u")
		l.SetPod(podWant("w", "w")) // both slots of the driver are taken
		synctest.Wait()
		otherwise := podWant("a", "v")
		otherwise.Volumes[0].Mount.ReadOnly = true
		l.SetPod(otherwise) // to be unmounted and made anew
		synctest.Wait()
		if v, _ := l.Volume("d^v"); v.Held.Step != plan.Unpublish {
			t.Fatalf("it does not wait to be unmounted: %+v", v.Held)
		}
		l.SetPod(podWant("a"))
		synctest.Wait()
		other := podWant("c", "x")
		other.Volumes[0].ID, other.Volumes[0].Spec.Driver = "e^x", "e"
		l.SetPod(other) // its intent is written, and of those that wait some
		mounted(t, l, "c")
		if m := d.records(t)["d^v"].Mounts["a"]; m.Phase != state.Entering {
			t.Errorf("the journal says that the mount is %v", m.Phase)
		}
		rest()
		if slices.Contains(h.calls(), "Unpublish d^v a") {
			t.Error("it was unmounted although its pod is listed")
		}
	})
}
