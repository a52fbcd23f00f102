package watch

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The check whether a FUSE file system has a server does not hold the file system: one
// whose server does not answer can be unmounted, and a dead one is reported.
func TestAFrozenFUSEFileSystemIsNotHeldByWhoLooksAtIt(t *testing.T) {
	w := watcher(t)
	target := filepath.Join(w.Root, "frozen")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	server := mountFUSE(t, target)
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", server.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(info), "fuse_connection:") {
		t.Skip("this kernel does not say what /dev/fuse is open for: Linux 6.14 does")
	}
	if err := w.Served(within(t), target); err != nil {
		t.Errorf("served: %v", err)
	}
	if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
		t.Errorf("unmount: %v", err)
	}
	server.Close()
	server = mountFUSE(t, target)
	server.Close()
	if err := w.Served(within(t), target); err == nil {
		t.Error("dead: no error")
	}
	if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
		t.Errorf("unmount: %v", err)
	}
}

// mountFUSE mounts a FUSE file system whose server answers the first request and no other.
func mountFUSE(t *testing.T, path string) *os.File {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() }) // closing it twice is harmless
	if err := unix.Mount("frozen", path, "fuse.frozen", 0, fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,fd=%d", server.Fd())); err != nil {
		t.Fatal(err)
	}
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16]) // the request's id
	binary.NativeEndian.PutUint32(reply[16:], 7)
	binary.NativeEndian.PutUint32(reply[20:], 31)
	binary.NativeEndian.PutUint32(reply[36:], 1<<16) // max_write
	if _, err := unix.Write(int(server.Fd()), reply); err != nil {
		t.Fatal(err)
	}
	return server
}

// A file system that is not FUSE is not asked, a FUSE one with a server is not dead, and
// one whose server has ended is.
//
// Faults: A163.
func TestAFUSEFileSystemWithoutServerIsDead(t *testing.T) {
	w := watcher(t)
	target := filepath.Join(w.Root, "served")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	server := mountFUSE(t, target)
	defer unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	known := func(paths ...string) {
		fuse := map[string]struct{}{}
		for _, p := range paths {
			fuse[p] = struct{}{}
		}
		w.setFUSE(fuse)
	}
	v := state.Volume{ID: "d^v", Spec: &state.Spec{Driver: "d"}}
	if info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", server.Fd())); err != nil {
		t.Fatal(err)
	} else if strings.Contains(string(info), "fuse_connection:") { // else Dead would ask the server, which answers nothing
		known(target)
		if err := w.Dead(within(t), v, target); err != nil {
			t.Errorf("served: %v", err)
		}
	}
	server.Close()
	known(target)
	if err := w.Dead(within(t), v, target); err == nil {
		t.Error("its server has ended, and it is not dead")
	}
	known()
	if err := w.Dead(within(t), v, target); err != nil {
		t.Errorf("of a path that is no FUSE file system's: %v", err)
	}
}
