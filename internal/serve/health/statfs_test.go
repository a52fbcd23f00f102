package health

import (
	"context"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// helper says how full a file system is.
type helper struct{ asked string }

func (h *helper) Do(_ context.Context, key, call string, _ []byte) ([]byte, error) {
	h.asked = call + " " + key
	return []byte(`{"Frsize": 512, "Blocks": 8, "Bfree": 3, "Bavail": 2, "Files": 6, "Ffree": 5}`), nil
}

func (*helper) Hung(string) error { return nil }

// A helper asks a built-in kind's file system how full it is: its server may hang, and this process has to be
// able to end then.
func TestFileSystemsAreAskedInHelpers(t *testing.T) {
	const id = state.VolumeID("kubernetes.io/glusterfs^a/data")
	h := &helper{}
	a := &Asker{
		Volumes: volumes{{Volume: state.Volume{
			ID: id, Spec: &state.Spec{Driver: kind.GlusterFS, Builtin: true, Mode: state.Filesystem},
			Mounts: map[state.PodUID]state.Mount{
				"pod": {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Target: "/none/mount"}},
			},
		}}},
		Mounts: watch.NewMounts(watch.MountsConfig{Kernel: mount.New().MakeAway(h)}), Controller: desk{},
		Drivers: func() map[state.DriverName]*csiclient.Driver { return nil },
	}
	q, ok := a.Question(stats.Subject{Key: string(id), Driver: kind.GlusterFS})
	if !ok {
		t.Fatal("there is no question")
	}
	r, err := q.Ask(t.Context())
	if err != nil || h.asked != "statfs /none/mount" {
		t.Errorf("asked %q, %v", h.asked, err)
	}
	bytes, inodes := stats.Usage{Total: 4096, Used: 2560, Available: 1024}, stats.Usage{Total: 6, Used: 1, Available: 5}
	if r.Bytes != bytes || r.Inodes != inodes {
		t.Errorf("got %+v", r)
	}
}
