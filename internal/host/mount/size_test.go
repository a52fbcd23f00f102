package mount

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// A file system on a device of its own has a size, and so has the device; a directory in
// it, a file system without a device and a missing path have none.
func TestSizeOfADeviceAndItsFileSystem(t *testing.T) {
	pool := isolate.New(isolate.Config{Command: helperCommand, Service: Service()})
	t.Cleanup(func() { must(t, pool.Close()) })
	device := ext4Device(t)
	for name, k := range map[string]*Kernel{"in a lane": New(), "in a helper": New().MakeAway(pool)} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			disk, part, memory := mkdir(t, dir, "disk"), mkdir(t, dir, "part"), mkdir(t, dir, "memory")
			must(t, k.Filesystem(device, disk, "ext4", nil))
			t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
			must(t, unix.Mount(mkdir(t, disk, "sub"), part, "", unix.MS_BIND, ""))
			t.Cleanup(func() { must(t, unix.Unmount(part, 0)) })
			must(t, k.Tmpfs(memory, TmpfsOptions{}))
			t.Cleanup(func() { must(t, unix.Unmount(memory, 0)) })
			size := func(path string) Sizes {
				s, err := k.Size(t.Context(), path)
				must(t, err)
				return s
			}
			raw := size(device)
			if raw.Device < 1<<20 || raw.FileSystem != 0 {
				t.Errorf("device: %+v", raw)
			}
			if s := size(disk); s.Device != raw.Device || s.FileSystem <= raw.Device/2 || s.FileSystem > raw.Device {
				t.Errorf("its file system: %+v, device %+v", s, raw)
			}
			var want unix.Statfs_t
			must(t, unix.Statfs(disk, &want))
			if st, err := k.Statfs(t.Context(), disk); err != nil || st != want {
				t.Errorf("statfs: %+v, %v, want %+v", st, err, want)
			}
			for _, path := range []string{part, memory, dir, dir + "/nowhere"} {
				if s := size(path); s != (Sizes{}) {
					t.Errorf("%s: %+v", path, s)
				}
			}
		})
	}
}
