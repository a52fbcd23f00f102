package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

const (
	// sweepPause is the precision of the files' times.
	sweepPause = time.Millisecond
	// propagateTime is longer than any system but the kubelet needs.
	propagateTime = 2 * time.Minute
)

// propagate changes the configMaps of all pods at once and measures when each pod's file
// has the new content.
func (b *bench) propagate() {
	time.Sleep(2 * time.Second) // what mounting left to do
	end := b.profile("propagate")
	u0 := b.sys.Usage()
	lat := b.changeAll(1)
	b.r.UpdCPU = b.sys.Usage().CPU(u0)
	end()
	b.r.UpdNaturalP50, _, b.r.UpdNaturalP99, b.r.UpdNaturalMax = pcts(lat)
	b.r.TotalMs = b.r.UpdNaturalMax
	b.r.CPU = benchdef.Round(b.r.UpdCPU)
}

// changeAll returns each pod's time from the change until its file shows it. One goroutine
// reads all files in turn, since many would take the processors.
func (b *bench) changeAll(gen int) []float64 {
	want, lat := fmt.Sprintf("gen-%d", gen), make([]float64, b.Flags.Pods)
	began := make([]atomic.Int64, b.Flags.Pods) // since t0
	changed := make(chan error, 1)
	t0 := time.Now()
	go func() {
		for p := range b.Flags.Pods {
			began[p].Store(int64(time.Since(t0)))
			if err := b.Update(b.ctx, p, gen); err != nil {
				changed <- fmt.Errorf("change the configMap of pod %d: %w", p, err)
				return
			}
		}
		changed <- nil
	}()
	left := make([]int, b.Flags.Pods)
	for p := range left {
		left[p] = p
	}
	for time.Since(t0) < propagateTime && len(left) > 0 {
		still := left[:0]
		for _, p := range left {
			if text, err := os.ReadFile(b.configFile(p)); err == nil && string(text) == want {
				lat[p] = benchdef.Ms(time.Since(t0) - time.Duration(began[p].Load()))
				continue
			}
			still = append(still, p)
		}
		left = still
		time.Sleep(sweepPause)
	}
	if err := <-changed; err != nil {
		b.fail(err)
	}
	if len(left) > 0 {
		b.fail(fmt.Errorf("%d pods never saw %s", len(left), want))
	}
	return lat
}

func (b *bench) configFile(p int) string {
	return filepath.Join(b.Flags.Root, "pods", benchdef.PodUID(p), "volumes/kubernetes.io~configmap/cm/a")
}
