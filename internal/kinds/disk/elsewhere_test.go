package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/disktest"
)

// mkfs finished, but the node was lost before it recorded that. Meanwhile another node
// mounted the disk and wrote to it. The first node keeps what is there.
//
// Faults: A029.
func TestFinishedFormatIsNotDoneAgain(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			n := disktest.New(t)
			device := n.Disk(wwid, "sda")
			lost := errors.New("the node was lost")
			mkfs := func(args []string) error {
				if fsType == "xfs" {
					args = append([]string{"--unsupported"}, args...) // the disk is smaller than 300 MiB
				}
				return n.Run("mkfs."+fsType, args...)
			}
			n.Programs["mkfs."+fsType] = func(args []string) error { return errors.Join(mkfs(args), lost) }
			want := disk.Want{FSType: fsType}
			if _, err := stage(n, want, "sda"); !errors.Is(err, lost) {
				t.Fatalf("got %v", err)
			}
			onAnotherNode(t, device, fsType, func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "file"), []byte("precious"), 0o600)
			})
			n.Programs["mkfs."+fsType] = mkfs
			n.Calls()
			v, err := stage(n, want, "sda")
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(v.Spec.StagePath, "file")); err != nil || string(b) != "precious" {
				t.Errorf("the file of the other node: %q, %v", b, err)
			}
			if calls := made(n.Calls()); len(calls) != 0 {
				t.Errorf("run %q", calls)
			}
			unstage(n, v)
		})
	}
}

// mkfs.xfs writes its superblock first, with a mark that it takes away at the end. A
// file system with the mark is not finished.
func TestUnfinishedXFSIsMadeAgain(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	cut := errors.New("killed")
	mkfs := func(args []string) error { return n.Run("mkfs.xfs", append([]string{"--unsupported"}, args...)...) }
	n.Programs["mkfs.xfs"] = func(args []string) error {
		err := mkfs(args)
		put(t, device, 126, []byte{1}) // sb_inprogress
		return errors.Join(err, cut)
	}
	if _, err := stage(n, disk.Want{FSType: "xfs"}, "sda"); !errors.Is(err, cut) {
		t.Fatalf("got %v", err)
	}
	n.Programs["mkfs.xfs"] = mkfs
	n.Calls()
	v, err := stage(n, disk.Want{FSType: "xfs"}, "sda")
	if err != nil {
		t.Fatal(err)
	}
	if calls := made(n.Calls()); len(calls) != 1 {
		t.Errorf("run %q", calls)
	}
	unstage(n, v)
}

// Another node made a file system on a disk that this node remembers as blank, since a
// process keeps the device open and the kernel its cache. The disk is not formatted.
//
// Faults: A029.
func TestBlankDiskInTheCacheIsReadAgain(t *testing.T) {
	prepare := map[string]func(n *disktest.Node, device string) error{
		"disk": func(n *disktest.Node, _ string) error {
			_, err := stage(n, ext4, "sda")
			return err
		},
		"device": func(n *disktest.Node, device string) error {
			return disk.Device{Path: device, Run: n.Stager().Host.Run}.Prepare(n.Context(), ext4)
		},
	}
	for name, prepare := range prepare {
		t.Run(name, func(t *testing.T) {
			n := disktest.New(t)
			device := n.Disk(wwid, "sda")
			holder, err := os.Open(device)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Close()
			if _, err := holder.Read(make([]byte, 16<<20)); err != nil {
				t.Fatal(err)
			}
			image, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop", "backing_file"))
			if err != nil {
				t.Fatal(err)
			}
			put(t, strings.TrimSpace(string(image)), 1<<20, []byte("precious"))
			err = prepare(n, device)
			if calls := made(n.Calls()); len(calls) != 0 {
				t.Errorf("run %q (%v)", calls, err)
			}
		})
	}
}

// onAnotherNode mounts the device for the time of use.
func onAnotherNode(t *testing.T, device, fsType string, use func(dir string) error) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(device, dir, fsType, 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(use(dir), unix.Unmount(dir, 0)); err != nil {
		t.Fatal(err)
	}
}

// Between the look at sysfs and the mount, the name goes to another disk.
//
// Faults: A035.
func TestNameThatGoesToAnotherDiskIsRefused(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	s, v := n.Stager(), n.Volume(kind, "data", `{}`, pod)
	if err := s.Begin(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	d, err := s.Host.Found([]string{"sda"})
	if err != nil {
		t.Fatal(err)
	}
	n.Set(wwid+"0", "block", "sda", "device", "wwid")
	if err := s.Mount(t.Context(), v, d, ext4); !errors.Is(err, disk.ErrIdentity) {
		t.Errorf("got %v", err)
	}
	if calls := n.Calls(); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
}

// A read-only volume is not repaired: that writes to the disk.
func TestReadOnlyDiskIsNotRepaired(t *testing.T) {
	n := disktest.New(t)
	device := n.Disk(wwid, "sda")
	if err := n.Run("mkfs.ext4", "-q", device); err != nil {
		t.Fatal(err)
	}
	v, err := stage(n, disk.Want{FSType: "ext4", ReadOnly: true}, "sda")
	if err != nil {
		t.Fatal(err)
	}
	if calls := n.Calls(); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
	unstage(n, v)
}

// A disk that is blank after mkfs succeeded has lost its writes, or is another one: the
// error says so, and nothing is made on it.
func TestDiskThatIsBlankAfterItsFormatIsRefused(t *testing.T) {
	n := disktest.New(t)
	n.Disk(wwid, "sda")
	n.Programs["mkfs.ext4"] = func([]string) error { return nil }
	if _, err := stage(n, ext4, "sda"); err == nil {
		t.Error("mounted a blank disk")
	}
	n.Calls()
	if _, err := stage(n, ext4, "sda"); !errors.Is(err, disk.ErrIdentity) {
		t.Errorf("again: got %v", err)
	}
	if calls := n.Calls(); len(calls) != 0 {
		t.Errorf("run %q", calls)
	}
}
