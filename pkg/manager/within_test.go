package manager

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// marked is a driver that records for which volume the context of each call is.
type marked struct {
	*fakeNode
	mu   sync.Mutex
	seen map[string]state.VolumeID
}

type markKey struct{}

func (m *marked) note(ctx context.Context, verb string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[verb], _ = ctx.Value(markKey{}).(state.VolumeID)
}

func (m *marked) Stage(ctx context.Context, v state.Volume) error {
	m.note(ctx, "Stage")
	return m.fakeNode.Stage(ctx, v)
}

func (m *marked) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	m.note(ctx, "Publish")
	return m.fakeNode.Publish(ctx, v, pod)
}

func (m *marked) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m.note(ctx, "Unpublish")
	return m.fakeNode.Unpublish(ctx, v, pod)
}

func (m *marked) Unstage(ctx context.Context, v state.Volume) error {
	m.note(ctx, "Unstage")
	return m.fakeNode.Unstage(ctx, v)
}

// Every call for a volume has the context that Config.Within returned for it.
func TestCallsAreMadeWithinTheirVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		m := &marked{fakeNode: h, seen: map[string]state.VolumeID{}}
		l := live(t, h, d, func(c *Config) {
			c.Within = func(ctx context.Context, v state.Volume) context.Context {
				return context.WithValue(ctx, markKey{}, v.ID)
			}
		})
		l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, m)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.RemovePod("a")
		gone(t, l, "a")
		rest()
		for _, verb := range []string{"Stage", "Publish", "Unpublish", "Unstage"} {
			if m.seen[verb] != state.SharedID("d", "v") {
				t.Errorf("%s: within %q", verb, m.seen[verb])
			}
		}
	})
}
