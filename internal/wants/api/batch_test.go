package api_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
)

// steppedKV lets one write through at a time.
type steppedKV struct {
	*journal.Memory
	step  chan struct{}
	sizes []int
}

func (k *steppedKV) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	<-k.step
	k.sizes = append(k.sizes, len(changes))
	return k.Memory.CommitBucket(ctx, bucket, changes)
}

// The first requests of a burst do not wait for the last: a write takes some of the waiting requests, in order, and
// they are in effect before the next write is made.
func TestABurstIsInEffectPieceByPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &steppedKV{Memory: journal.NewMemory(), step: make(chan struct{})}
		p, c := start(t, kv, "")
		const n = 200
		var wg sync.WaitGroup
		for i := range n {
			pod := decode(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p%03d}}", i))
			wg.Go(func() {
				if _, err := p.Apply(t.Context(), pod); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for writes := 0; len(kv.sizes) == writes; writes++ {
			done := 0
			for _, size := range kv.sizes {
				done += size
			}
			in := c.keys()
			if len(in) != done || done > 0 && in[done-1].Name != fmt.Sprintf("p%03d", done-1) {
				t.Errorf("after %d writes of %v, %d are in effect", writes, kv.sizes, len(in))
			}
			if done == n {
				break
			}
			kv.step <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		if writes := len(kv.sizes); writes < 3 || writes > 8 {
			t.Errorf("%d writes of %v", writes, kv.sizes)
		}
	})
}

// Once an object of a burst is deleted, the queue of requests does not keep it in memory, even if no client applies
// anything afterwards.
func TestAServedRequestIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &steppedKV{Memory: journal.NewMemory(), step: make(chan struct{})}
		p, _ := start(t, kv, "")
		var wg sync.WaitGroup
		var applied []weak.Pointer[corev1.Pod]
		for i := range 100 { // one is being written; the queue of the others has some room left
			objects := decode(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p%03d}}", i))
			applied = append(applied, weak.Make(objects[0].(*corev1.Pod)))
			wg.Go(func() {
				if _, err := p.Apply(t.Context(), objects); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(kv.step)
		wg.Wait()
		for i := range 10 {
			if err := p.Delete(t.Context(), key("Pod", fmt.Sprintf("p%03d", i))); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		kept := slices.DeleteFunc(applied[:10], func(pod weak.Pointer[corev1.Pod]) bool { return pod.Value() == nil })
		if len(kept) > 0 {
			t.Errorf("%d of 10 deleted objects are kept", len(kept))
		}
		runtime.KeepAlive(p)
	})
}
