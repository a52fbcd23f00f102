package manager

import (
	"context"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ledger counts the writes of a store.
type ledger struct {
	*disk
	mu                              sync.Mutex
	transactions, records, removals int
}

func (l *ledger) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	l.mu.Lock()
	l.transactions++
	for _, v := range changes {
		if v == nil {
			l.removals++
		} else {
			l.records++
		}
	}
	l.mu.Unlock()
	return l.disk.Commit(ctx, changes)
}

func (l *ledger) take() (transactions, records, removals int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	transactions, records, removals = l.transactions, l.records, l.removals
	l.transactions, l.records, l.removals = 0, 0, 0
	return transactions, records, removals
}

// made counts the calls of a verb.
func (h *fakeNode) made(verb string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.took[verb]
}

// A burst writes one intent and one result for each volume that is mounted, and one intent
// and one deletion for each that is unmounted. The intents of volumes that wait for a slot are
// written together with those of volumes that have one, so that transactions are few.
func TestABurstWritesEachVolumeTwiceInFewTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 600
		h, d := newFakeNode(t), newDisk()
		book := &ledger{disk: d}
		h.fails(func(string) fault { return fault{takes: time.Millisecond} })
		l := live(t, h, d, func(c *Config) { c.Store = book })
		l.up(h)
		synctest.Wait()
		book.take()
		l.atOnce(func() {
			for i := range n {
				l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
			}
		})
		for i := range n {
			mounted(t, l, fmt.Sprint("p", i))
		}
		rest()
		if tx, records, removals := book.take(); tx > 12 || records > 2*n+n/10 || removals != 0 {
			t.Errorf("%d volumes are made: %d transactions, %d records written, %d removed", n, tx, records, removals)
		}
		l.atOnce(func() {
			for i := range n {
				l.RemovePod(state.PodUID(fmt.Sprint("p", i)))
			}
		})
		for i := range n {
			gone(t, l, fmt.Sprint("p", i))
		}
		rest()
		if tx, records, removals := book.take(); tx > 12 || records > n+n/10 || removals != n {
			t.Errorf("%d volumes go: %d transactions, %d records written, %d removed", n, tx, records, removals)
		}
		if len(d.records(t)) != 0 {
			t.Errorf("%d records are left", len(d.records(t)))
		}
	})
}

// The cost of a volume does not grow with the number of volumes: a round of the loop, an event
// and a read of the snapshot copy only what changed.
func TestWhatAVolumeAllocatesDoesNotGrow(t *testing.T) {
	perVolume := func(n int) uint64 {
		var before, after goruntime.MemStats
		o := &obliging{paths: map[string]bool{}}
		m, err := New(Config{Store: journal.NewMemory(), Kernel: o, BootID: "boot", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		m.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, o)
		var pods []state.PodWant
		for i := range n {
			pods = append(pods, podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		goruntime.ReadMemStats(&before)
		for _, p := range pods {
			m.SetPod(p)
		}
		all(t, pods, m.WaitForAttachAndMount)
		for _, p := range pods {
			m.RemovePod(p.Pod.UID)
		}
		all(t, pods, m.WaitForUnmount)
		goruntime.ReadMemStats(&after)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	few, many := perVolume(200), perVolume(1600)
	if many > 150_000 || many > 2*few {
		t.Errorf("%d bytes a volume with 200, %d with 1,600", few, many)
	}
}

// A volume whose intent is durable before it has a slot, and that no pod wants any longer,
// leaves no record and gets no call.
func TestAnIntentThatIsNotFollowedIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		h, d := newFakeNode(t), newDisk()
		h.fails(func(string) fault { return fault{takes: 10 * time.Second} })
		l := live(t, h, d)
		l.up(h)
		l.atOnce(func() {
			for i := range n {
				l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
			}
		})
		time.Sleep(time.Second)
		if r := d.records(t); len(r) != n {
			t.Fatalf("%d intents are durable, want those of all %d that are wanted", len(r), n)
		}
		l.atOnce(func() {
			for i := range n {
				l.RemovePod(state.PodUID(fmt.Sprint("p", i)))
			}
		})
		time.Sleep(time.Second)
		if r, began := d.records(t), h.made("Stage"); len(r) != began || began >= n {
			t.Errorf("%d records are left of %d that began", len(r), began)
		}
		rest()
		if r := d.records(t); len(r) != 0 || h.made("Stage") >= n || !h.clean() {
			t.Errorf("%d records are left, %d volumes were staged", len(r), h.made("Stage"))
		}
	})
}

// A removal whose intent is durable before it has a slot is not turned back (rule 2): a pod
// that comes back has its volume mounted again, and does not count as mounted until then.
func TestARemovalThatWaitsIsNotTurnedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, sources("s"))
		l.up(h)
		l.atOnce(func() {
			for i := range n {
				l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
			}
		})
		for i := range n {
			mounted(t, l, fmt.Sprint("p", i))
		}
		h.fails(func(string) fault { return fault{takes: 10 * time.Second} })
		for i := range n {
			l.RemovePod(state.PodUID(fmt.Sprint("p", i)))
		}
		synctest.Wait() // nothing is removed before all sources have listed their pods
		l.SourceSynced("s")
		time.Sleep(time.Second)
		for id, v := range d.records(t) {
			for uid, m := range v.Mounts {
				if m.Phase != state.Leaving {
					t.Fatalf("%s is %s in %s: the intents of all removals should be durable", uid, m.Phase, id)
				}
			}
		}
		l.atOnce(func() {
			for i := range n {
				l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
			}
		})
		time.Sleep(time.Second)
		for _, p := range l.Pods() {
			if p.Ready {
				t.Errorf("pod %s is told that it has what is leaving", p.Pod.Name)
			}
		}
		for i := range n {
			mounted(t, l, fmt.Sprint("p", i))
		}
		if h.made("Unpublish") != n || h.made("Publish") != 2*n {
			t.Errorf("%d removals, %d publishes", h.made("Unpublish"), h.made("Publish"))
		}
	})
}
