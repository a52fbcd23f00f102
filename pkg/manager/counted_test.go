package manager

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// countingDisk is a driver that counts publications by target on its own disk, which a reboot does not
// change, as csi-driver-host-path does.
type countingDisk struct {
	*fakeNode
	mu     sync.Mutex // guards counts
	counts map[string]int
	hangs  atomic.Bool // Unpublish never answers
}

func newCountingDisk(h *fakeNode) *countingDisk {
	return &countingDisk{fakeNode: h, counts: map[string]int{}}
}

func (d *countingDisk) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	target := v.Mounts[pod].Target
	if seen, _ := d.Look(ctx, target); !seen.Mounted {
		d.mu.Lock()
		d.counts[target]++
		d.mu.Unlock()
	}
	return d.fakeNode.Publish(ctx, v, pod)
}

func (d *countingDisk) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	if d.hangs.Load() {
		<-ctx.Done()
		return &state.CallError{Outcome: state.Uncertain, Call: "NodeUnpublishVolume", Code: "DeadlineExceeded", Err: ctx.Err()}
	}
	err := d.fakeNode.Unpublish(ctx, v, pod)
	d.mu.Lock()
	defer d.mu.Unlock()
	if target := v.Mounts[pod].Target; err == nil && d.counts[target] > 0 {
		d.counts[target]--
	}
	return err
}

func (d *countingDisk) Unstage(ctx context.Context, v state.Volume) error {
	for target, n := range d.counted() {
		if n > 0 && strings.HasSuffix(target, "/"+v.Spec.Handle) {
			_ = d.fakeNode.Unstage(ctx, state.Volume{ID: v.ID, Spec: &state.Spec{}}) // only to log it
			return internal("NodeUnstageVolume", "still published at "+target)
		}
	}
	return d.fakeNode.Unstage(ctx, v)
}

// counted returns what is counted, by target.
func (d *countingDisk) counted() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}

func (d *countingDisk) count(target string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[target] = n
}

// has returns the volume that is published at target, "" for none.
func (h *fakeNode) has(target string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.published[target]
}

func internal(call, text string) error {
	return &state.CallError{Outcome: state.Failed, Call: call, Code: "Internal", Err: errors.New(text)}
}

func (d *countingDisk) up(l *life) {
	l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, d)
}

// reboot ends l and what the kernel has, and starts a manager in another boot.
func (d *countingDisk) reboot(t *testing.T, l *life, s *disk, id string) *life {
	t.Helper()
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	clear(d.published)
	clear(d.staged)
	return live(t, d.fakeNode, s, boot(id), sources("s"))
}

func (d *countingDisk) wantNothing(t *testing.T, l *life) {
	t.Helper()
	left := d.counted()
	maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
	if !d.clean() || len(left) != 0 || len(l.Volumes()) != 0 {
		t.Errorf("left: publications %v, %d volumes, calls %v", left, len(l.Volumes()), d.calls())
	}
}

// A reboot takes the mounts and leaves the driver's count: each volume is unpublished once before it is
// published again, by the first daemon of the boot or by one after it, and is removed afterwards.
func TestAVolumeThatADriverCountsOnDiskIsRemovedAfterReboots(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, s := newFakeNode(t), newDisk()
			d := newCountingDisk(h)
			l := live(t, h, s)
			d.up(l)
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			rest()
			for _, id := range []string{"boot-2", "boot-3"} {
				l = d.reboot(t, l, s, id)
				if killed { // before any driver registers
					rest()
					_ = l.stop()
					l = live(t, h, s, boot(id), sources("s"))
				}
				before := len(h.calls())
				d.up(l)
				l.SetPod(podWant("a", "v"))
				l.SourceSynced("s")
				mounted(t, l, "a")
				rest()
				equal(t, "calls", h.calls()[before:], []string{"Stage d^v", "Unpublish d^v a", "Publish d^v a"})
			}
			before := len(h.calls())
			l.RemovePod("a")
			rest()
			equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v a", "Unstage d^v"})
			d.wantNothing(t, l)
		})
	}
}

// An Unpublish that fails, or has no answer, before the first Publish of a boot keeps no pod waiting,
// its own least of all. What the driver still counts is unpublished again when it refuses Unstage.
func TestAVolumeIsPublishedAfterARebootWhateverUnpublishAnswers(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, s := newFakeNode(t), newDisk()
			d := newCountingDisk(h)
			l := live(t, h, s)
			d.up(l)
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			rest()
			l = d.reboot(t, l, s, "boot-2")
			d.hangs.Store(hangs)
			h.fails(func(call string) (f fault) {
				if strings.HasPrefix(call, "Unpublish") {
					f.err = internal("NodeUnpublishVolume", "not mounted")
				}
				return f
			})
			d.up(l)
			began := time.Now()
			l.SetPod(podWant("b", "w")) // another author's
			l.SetPod(podWant("a", "v"))
			l.SourceSynced("s")
			mounted(t, l, "b")
			if took := time.Since(began); took > 0 {
				t.Errorf("the other volume waited %v", took)
			}
			mounted(t, l, "a")
			if took := time.Since(began); took > formerDeadline {
				t.Errorf("the pod waited %v", took)
			}
			rest()
			if n := d.counted()["/pods/a/v"]; n != 2 {
				t.Errorf("the driver counts %d publications: the test does not test anything", n)
			}
			d.hangs.Store(false)
			h.fails(nil)
			l.RemovePod("a")
			l.RemovePod("b")
			rest()
			d.wantNothing(t, l)
		})
	}
}

// A volume that an earlier version published twice, for several pods and after several reboots, is
// unpublished again each time that Unstage is refused, also if the daemon is killed in between.
func TestFormerTargetsAreUnpublishedAgainWhenUnstageIsRefused(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, s := newFakeNode(t), newDisk()
			d := newCountingDisk(h)
			l := live(t, h, s)
			d.up(l)
			l.SetPod(podWant("a", "v"))
			l.SetPod(podWant("b", "v"))
			mounted(t, l, "a")
			mounted(t, l, "b")
			d.count("/pods/a/v", 3)
			d.count("/pods/b/v", 2)
			l.RemovePod("a")
			gone(t, l, "a")
			rest()
			l.RemovePod("b")
			if killed {
				gone(t, l, "b")
				synctest.Wait()
				_ = l.stop()
				l = live(t, h, s, sources("s"))
				d.up(l)
				l.SourceSynced("s")
			}
			rest()
			d.wantNothing(t, l)
			if n := len(slices.DeleteFunc(h.calls(), func(c string) bool { return c != "Unstage d^v" })); n > 5 {
				t.Errorf("%d calls of Unstage", n)
			}
		})
	}
}

// A driver that finds the volume in use for another reason, and refuses to unpublish what does not
// exist, is not kept from being asked to unstage.
func TestAnUnstageThatFailsForAnotherReasonIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newFakeNode(t), newDisk()
		d := newCountingDisk(h)
		l := live(t, h, s)
		d.up(l)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.RemovePod("a")
		gone(t, l, "a")
		h.fails(func(call string) (f fault) {
			f.err = internal("Node"+strings.Fields(call)[0]+"Volume", "busy")
			return f
		})
		l.SetPod(podWant("a"))
		rest()
		h.fails(nil)
		rest()
		d.wantNothing(t, l)
	})
}

// A pod of the same UID has another volume at the former target, as after its PersistentVolume was
// replaced: the driver, which would unmount that, is not asked.
func TestAFormerTargetOfAnotherVolumeIsNotUnpublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newFakeNode(t), newDisk()
		d := newCountingDisk(h)
		l := live(t, h, s)
		d.up(l)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		d.count("/pods/a/v", 2)
		stuck := func(call string) (f fault) {
			if call == "Unpublish d^v a" {
				f.takes = time.Minute
			}
			return f
		}
		h.fails(stuck)
		l.RemovePod("a")
		time.Sleep(90 * time.Second) // the second Unpublish is in flight
		synctest.Wait()
		if busy := h.busy(); len(busy) != 1 || busy[0] != "Unpublish d^v a" {
			t.Fatalf("in flight: %v", busy)
		}
		d.count("/pods/a/v", 5)
		l.SetPod(replaced("a"))
		synctest.Wait()
		if h.has("/pods/a/v") != "" {
			t.Error("published while the other volume is being unpublished there")
		}
		mounted(t, l, "a")
		rest()
		if h.has("/pods/a/v") != "d^w" {
			t.Errorf("the pod lost its volume: %v", h.calls())
		}
	})
}
