package drivertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Device returns the path of a loop device of 16 MiB, or 320 MiB for xfs and btrfs. The
// device is detached when the test has ended and nothing uses it. If fsType is not
// empty, the device is formatted with it.
func Device(t *testing.T, fsType string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	backing, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	size := int64(16 << 20)
	if fsType == "btrfs" || fsType == "xfs" { // the minimum is 300 MiB for xfs and 109 MiB for btrfs
		size = 320 << 20
	}
	if err := backing.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if fsType != "" {
		if out, err := exec.Command("mkfs."+fsType, "-q", image).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.%s: %v: %s", fsType, err, out)
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	for range 100 { // another process may take the free one first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatalf("find a free loop device: %v", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &config); err == nil {
			t.Cleanup(func() { loop.Close() }) // closing detaches it
			return loop.Name()
		}
		loop.Close()
		if err != unix.EBUSY {
			t.Fatalf("configure %s: %v", loop.Name(), err)
		}
	}
	t.Fatal("no loop device is free")
	return ""
}
