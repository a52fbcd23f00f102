package api_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// steppedKV lets one write through at a time.
type steppedKV struct {
	*state.Memory
	step  chan struct{}
	sizes []int
}

func (k *steppedKV) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	<-k.step
	k.sizes = append(k.sizes, len(changes))
	return k.Memory.CommitBucket(ctx, bucket, changes)
}

// Those that came first do not wait for the last of a burst: a write takes some
// of those that wait, in order, and they are in effect before the next is made.
func TestABurstIsInEffectPieceByPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &steppedKV{Memory: state.NewMemory(), step: make(chan struct{})}
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
