package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bare is a kernel that shows targets without a mount as directories.
type bare struct{ *fakeNode }

func (b bare) Look(ctx context.Context, path string) (state.Seen, error) {
	seen, err := b.fakeNode.Look(ctx, path)
	seen.Exists = true
	return seen, err
}

// A file in a target keeps the driver from removing it: the failure says so, and the pod's mount
// is removed as soon as the file is gone.
//
// Faults: A164.
func TestAStrayFileInATargetIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, files := newFakeNode(t), 3
		l := live(t, h, newDisk(), func(c *Config) {
			c.Kernel = bare{h}
			c.Stray = func(path string) int {
				if path != "/pods/a/v" {
					t.Errorf("looked at %s", path)
				}
				return files
			}
		})
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Unpublish") {
				return fault{err: errors.New("directory not empty"), effect: true}
			}
			return fault{}
		})
		l.RemovePod("a")
		time.Sleep(time.Minute)
		if v, _ := l.Volume("d^v"); v.Volume.Mounts["a"].Retry().Stray != files {
			t.Errorf("the record says %+v", v.Volume.Mounts["a"].Retry())
		}
		h.fails(nil)
		gone(t, l, "a")
	})
}
