package manager

import (
	"context"
	"fmt"
	gort "runtime"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// nowhere is a journal that stores nothing.
type nowhere struct{}

func (nowhere) Load(context.Context) (state.Loaded, error) { return state.Loaded{}, nil }

func (nowhere) Commit(context.Context, map[state.VolumeID]*state.Volume) error { return nil }

func (nowhere) SetBootID(context.Context, string) error { return nil }

// BenchmarkLive measures the heap that a mounted volume needs.
func BenchmarkLive(b *testing.B) {
	for _, n := range []int{1000, 4000} {
		b.Run(fmt.Sprintf("volumes=%d", n), func(b *testing.B) {
			live := func() uint64 {
				gort.GC()
				gort.GC()
				var m gort.MemStats
				gort.ReadMemStats(&m)
				return m.HeapAlloc
			}
			for b.Loop() {
				var pods []state.PodWant
				for i := range n {
					pods = append(pods, podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
				}
				before := live()
				m := begin(b, nowhere{})
				for _, p := range pods {
					m.SetPod(p)
				}
				all(b, pods, m.WaitForAttachAndMount)
				b.ReportMetric(float64(int64(live()-before))/float64(n), "B/volume")
				gort.KeepAlive(pods)
			}
		})
	}
}
