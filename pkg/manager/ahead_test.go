package manager

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// slowDisk takes long for some commits.
type slowDisk struct {
	*disk
	takes func(changes map[state.VolumeID]*state.Volume) time.Duration
}

func (d *slowDisk) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	time.Sleep(d.takes(changes))
	return d.disk.Commit(ctx, changes)
}

// The intents of calls that are still to come are not overwritten by an older result at the
// moment when the next of them is made.
func TestAResultThatIsWrittenLateLeavesTheIntentOfTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		one, other := state.SharedID("d", "v"), state.SharedID("d", "w")
		store := &slowDisk{d, func(changes map[state.VolumeID]*state.Volume) time.Duration {
			if changes[other] != nil { // so that the loop is away while the first Publish ends
				return 100 * time.Millisecond
			}
			return 0
		}}
		l := live(t, h, d, func(c *Config) { c.Store = store })
		l.up(h)
		published := 0
		h.fails(func(call string) fault {
			if call != "Publish "+string(one)+" p1" && call != "Publish "+string(one)+" p2" {
				return fault{}
			}
			published++
			pod := state.PodUID(call[len(call)-2:])
			if m := d.records(t)[one].Mounts[pod]; m.Phase != state.Entering {
				t.Errorf("%s is made while the journal says of it: %v", call, m.Phase)
			}
			return fault{takes: resultWait + 20*time.Millisecond}
		})
		l.atOnce(func() {
			l.SetPod(podWant("p1", "v"))
			l.SetPod(podWant("p2", "v"))
		})
		time.Sleep(resultWait - 10*time.Millisecond)
		l.SetPod(podWant("p3", "w"))
		mounted(t, l, "p1")
		mounted(t, l, "p2")
		if published != 2 {
			t.Errorf("%d Publish calls of the volume, want 2", published)
		}
	})
}

// When the loop is idle, a result is written at once, so that a mount is known after a
// crash. The caller that waits for the mount does not wait for the write.
func TestAtRestAResultIsWrittenAtOnceAndToldBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		id, long := state.SharedID("d", "v"), lazyWrite/2
		present := func(v *state.Volume) bool { return v != nil && v.Mounts["a"].Phase == state.Present }
		store := &slowDisk{d, func(changes map[state.VolumeID]*state.Volume) time.Duration {
			if present(changes[id]) {
				return long
			}
			return 0
		}}
		l := live(t, h, d, func(c *Config) { c.Store = store })
		l.up(h)
		began := time.Now()
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		if took := time.Since(began); took >= long {
			t.Errorf("the pod is told after %v, when the result was written", took)
		}
		time.Sleep(long)
		synctest.Wait()
		if v := d.records(t)[id]; !present(&v) {
			t.Errorf("a while later the journal says %v", v.Mounts["a"].Phase)
		}
	})
}
