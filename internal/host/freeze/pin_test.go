package freeze

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// A file system that is mounted over the volume's while csi-volmgr opens it is not frozen in its place: the snapshot
// would be of a volume that its writers go on changing. It may be of the same device, so the mount's id counts too.
func TestAMountThatChangesBeforeTheFreezeIsRefused(t *testing.T) {
	for what, next := range map[string]mount.Entry{
		"another device": {FSType: "ext4", Root: "/", Dev: other, ID: 7}, "another mount": {FSType: "ext4", Root: "/", Dev: loop, ID: 8},
	} {
		made(t, newJournal(), func(t *testing.T, m *mock) {
			looks := 0
			m.c.Mounts = func(context.Context) ([]mount.Entry, error) {
				e := mount.Entry{FSType: "ext4", Root: "/", Dev: loop, ID: 7}
				if looks++; looks > 1 {
					e = next
				}
				e.Path = m.path
				return []mount.Entry{{Path: "/", Root: "/", Dev: disk}, e}, nil
			}
			_, err := m.Freeze(t.Context(), "v", time.Hour)
			if err == nil || !strings.Contains(err.Error(), "another file system was mounted at "+m.path) {
				t.Errorf("%s: %v", what, err)
			}
			m.want(t, "", 0)
		})
	}
}

// The record of a file system that could not be thawed before the daemon ends stays, and the next daemon thaws it:
// without the record every writer would hang until a person runs fsfreeze -u.
func TestTheRecordOutlivesAThawThatFails(t *testing.T) {
	j := newJournal()
	made(t, j, func(t *testing.T, m *mock) {
		z, err := m.Freeze(t.Context(), "v", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		m.kernel.stuck = 100
		m.die()
		m.want(t, "freeze thaw", 1)
		if !z(t.Context()) {
			t.Error("it is said to be over")
		}
	})
	made(t, j, func(t *testing.T, m *mock) { m.want(t, "thaw", 0) })
}
