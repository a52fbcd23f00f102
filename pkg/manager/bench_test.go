package manager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// obliging is a driver and a kernel that answer at once.
type obliging struct {
	storage
	mu    sync.Mutex
	paths map[string]bool
}

func (o *obliging) set(path string, there bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paths[path] = there
	return nil
}

func (o *obliging) Stage(_ context.Context, v state.Volume) error {
	return o.set(v.Spec.StagePath, true)
}

func (o *obliging) Unstage(_ context.Context, v state.Volume) error {
	return o.set(v.Spec.StagePath, false)
}

func (o *obliging) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, o.set(v.Mounts[pod].Target, true)
}

func (o *obliging) Unpublish(_ context.Context, v state.Volume, pod state.PodUID) error {
	return o.set(v.Mounts[pod].Target, false)
}

func (o *obliging) Expand(context.Context, state.Volume, state.PodUID, int64) (int64, error) {
	return 1, nil
}

func (o *obliging) Look(_ context.Context, path string) (state.Seen, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return state.Seen{Exists: o.paths[path], Mounted: o.paths[path], BlockDevice: o.paths[path], Layers: 1}, nil
}

// begin runs a manager of an obliging driver until the benchmark ends.
func begin(b *testing.B, store Store) *Manager {
	b.Helper()
	o := &obliging{paths: map[string]bool{}}
	m, err := New(Config{Store: store, Kernel: o, BootID: "boot", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	m.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, o)
	return m
}

// all waits for every pod at once, as an agent that runs pods does.
func all(b testing.TB, pods []state.PodWant, wait func(context.Context, state.PodUID) error) {
	b.Helper()
	var wg sync.WaitGroup
	for _, p := range pods {
		wg.Go(func() {
			if err := wait(b.Context(), p.Pod.UID); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// BenchmarkMountAndUnmount measures the manager's own cost of mounting and unmounting a
// pod's volume, without driver, kernel and disk. ns/volume should not grow with the number
// of volumes.
func BenchmarkMountAndUnmount(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
		mode state.Mode
	}{
		{"volumes=1", 1, state.Filesystem},
		{"volumes=100", 100, state.Filesystem},
		{"volumes=1000", 1000, state.Filesystem},
		{"volumes=4000", 4000, state.Filesystem},
		{"blocks=4000", 4000, state.Block},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := begin(b, journal.NewMemory())
			var pods []state.PodWant
			for i := range c.n {
				p := podWant(fmt.Sprint("p", i), fmt.Sprint("v", i))
				p.Volumes[0].Spec.Mode = c.mode
				pods = append(pods, p)
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range pods {
					m.SetPod(p)
				}
				all(b, pods, m.WaitForAttachAndMount)
				for _, p := range pods {
					m.RemovePod(p.Pod.UID)
				}
				all(b, pods, m.WaitForUnmount)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/volume")
		})
	}
}

// BenchmarkEventAmongMany measures one pod that comes and goes on a node with many others:
// the cost of an event must not depend on their number.
func BenchmarkEventAmongMany(b *testing.B) {
	for _, n := range []int{0, 1000, 10_000} {
		b.Run(fmt.Sprintf("others=%d", n), func(b *testing.B) {
			m := begin(b, journal.NewMemory())
			var others []state.PodWant
			for i := range n {
				others = append(others, podWant(fmt.Sprint("o", i), fmt.Sprint("w", i)))
				m.SetPod(others[i])
			}
			all(b, others, m.WaitForAttachAndMount)
			one := []state.PodWant{podWant("p", "v")}
			b.ReportAllocs()
			for b.Loop() {
				m.SetPod(one[0])
				all(b, one, m.WaitForAttachAndMount)
				m.RemovePod("p")
				all(b, one, m.WaitForUnmount)
			}
		})
	}
}
