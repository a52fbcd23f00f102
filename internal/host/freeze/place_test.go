package freeze

import (
	"errors"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

const (
	disk  = 8<<32 | 1 // the host's
	other = 8<<32 | 2
	loop  = 7<<32 | 3 // the volume's
	anon  = 40        // of no device
)

// A file system is frozen only if it belongs to one volume alone and as a whole, and the kernel can freeze it.
func TestWhatMayBeFrozen(t *testing.T) {
	host := []mount.Entry{
		{Path: "/", Root: "/", FSType: "ext4", Dev: disk},
		{Path: "/mnt/disks", Root: "/", FSType: "xfs", Dev: other},
		{Path: "/lib/stage/a", Root: "/", FSType: "tmpfs", Dev: 99},
	}
	at := func(path, root, fsType string, dev uint64) mount.Entry {
		return mount.Entry{Path: path, Root: root, FSType: fsType, Dev: dev}
	}
	place := place{Path: "/lib/stage/a", Own: []string{"/lib/stage/a", "/lib/pods"}, Others: []string{"/lib/stage/b", "/lib/pods/2/b"}}
	never := []string{"/", "/var/log", "/lib", "/mnt/disks/state"}
	for what, c := range map[string]struct {
		mounts []mount.Entry
		path   string // of the place, if it differs
		want   error
		any    bool // any error
	}{
		"the volume's own":          {mounts: []mount.Entry{at("/lib/stage/a", "/", "ext4", loop)}},
		"with its pods":             {mounts: []mount.Entry{at("/lib/stage/a", "/", "ext4", loop), at("/lib/pods/1/a", "/", "ext4", loop), at("/lib/pods/1/subpaths/0", "/d", "ext4", loop)}},
		"btrfs":                     {mounts: []mount.Entry{at("/lib/stage/a", "/", "btrfs", anon)}},
		"another volume's pod too":  {mounts: []mount.Entry{at("/lib/stage/a", "/", "ext4", loop), at("/lib/pods/2/b", "/", "ext4", loop)}, want: ErrNever},
		"another volume has a part": {mounts: []mount.Entry{at("/lib/stage/a", "/", "ext4", loop), at("/lib/stage/b", "/d", "ext4", loop)}, want: ErrNever},
		"the host too":              {mounts: []mount.Entry{at("/lib/stage/a", "/", "xfs", other)}, want: ErrNever},
		"a name that begins so":     {mounts: []mount.Entry{at("/lib/stage/a", "/", "ext4", loop), at("/lib/stage/ab", "/", "ext4", loop)}, want: ErrNever},
		"a directory of the host":   {mounts: []mount.Entry{at("/lib/stage/a", "/srv/a", "ext4", disk)}, want: ErrNever},
		"the root's":                {mounts: []mount.Entry{at("/lib/stage/a", "/", "ext4", disk)}, want: ErrNever},
		"a subvolume":               {mounts: []mount.Entry{at("/lib/stage/a", "/sub", "btrfs", anon)}, want: ErrNever},
		"nfs":                       {mounts: []mount.Entry{at("/lib/stage/a", "/vol", "nfs4", anon)}, want: ErrUnable},
		"memory":                    {want: ErrUnable},
		"FUSE on a device":          {mounts: []mount.Entry{at("/lib/stage/a", "/", "fuseblk", loop)}, want: ErrUnable},
		"nothing":                   {path: "/lib/stage/c", any: true},
	} {
		p := place
		if c.path != "" {
			p.Path = c.path
		}
		got, err := judge(append(append([]mount.Entry{}, host...), c.mounts...), p, never)
		switch {
		case c.any:
			if err == nil {
				t.Errorf("%s: %+v", what, got)
			}
		case !errors.Is(err, c.want):
			t.Errorf("%s: %v, want %v", what, err, c.want)
		case c.want == nil && (got.Path != p.Path || got.Dev == 99):
			t.Errorf("%s: %+v", what, got)
		}
	}
	// csi-volmgr's own state lies below the volume's mount, so it is on the volume's device.
	if _, err := judge([]mount.Entry{at("/", "/", "ext4", disk), at("/lib/stage/a", "/", "ext4", loop)}, place,
		[]string{"/lib/stage/a/state"}); !errors.Is(err, ErrNever) {
		t.Errorf("the state is on it: %v", err)
	}
}
