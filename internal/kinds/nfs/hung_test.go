package nfs_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/nfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

const fuseDestroy = 38 // FUSE_DESTROY

// Rule 9: a server that does not answer keeps the kernel from ending the mount.
// Unpublish succeeds nevertheless, since the mount is no longer in any directory. The
// server is a FUSE server that does not answer FUSE_DESTROY.
//
// Faults: A042.
func TestServerThatIsGoneDoesNotKeepThePod(t *testing.T) {
	n := newNode(t)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	device := drivertest.Device(t, "ext4")
	mountIt := func(_ context.Context, c program.Command) error {
		data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,blksize=4096,fd=%d", server.Fd())
		return unix.Mount(device, c.Args[1], "fuseblk", 0, data)
	}
	n.driver = nfs.New(nfs.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Run: mountIt, UnmountTime: 100 * time.Millisecond})
	v := n.volume("filer", "/export")
	if err := n.driver.Publish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	if err := answerInit(server); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- readDestroy(server) }()
	if err := n.driver.Unpublish(t.Context(), v, pod); err != nil {
		t.Error(err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(n.target()); !os.IsNotExist(err) {
		t.Errorf("target: %v", err)
	}
	server.Close() // lets umount(2) return
}

// A mount that is there already is not opened: its server may hang, and this process has to be able to end
// then.
func TestAMountThatIsThereIsNotOpened(t *testing.T) {
	n := newNode(t)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	mountIt := func(_ context.Context, c program.Command) error {
		data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,fd=%d", server.Fd())
		return unix.Mount(c.Args[0], c.Args[1], "fuse.hung", 0, data)
	}
	n.driver = nfs.New(nfs.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Run: mountIt})
	v := n.volume("filer", "/export")
	if err := n.driver.Publish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	if err := answerInit(server); err != nil {
		t.Fatal(err)
	}
	asked := make(chan uint32, 1)
	go func() {
		request := make([]byte, 1<<17)
		if _, err := unix.Read(int(server.Fd()), request); err == nil { // ENODEV: it was unmounted
			asked <- binary.NativeEndian.Uint32(request[4:]) // struct fuse_in_header
		}
		server.Close() // ends the request
		close(asked)
	}()
	if err := n.driver.Publish(t.Context(), v, pod); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := unix.Unmount(n.target(), 0); err != nil {
		t.Error(err)
	}
	if request := <-asked; request != 0 {
		t.Errorf("the server got request %d", request)
	}
}

// answerInit answers the first request and no other.
func answerInit(server *os.File) error {
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil {
		return err
	}
	reply := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16]) // the request's id
	binary.NativeEndian.PutUint32(reply[16:], 7)
	binary.NativeEndian.PutUint32(reply[20:], 31)
	binary.NativeEndian.PutUint32(reply[36:], 1<<16) // max_write
	_, err := unix.Write(int(server.Fd()), reply)
	return err
}

// readDestroy waits until the kernel sends FUSE_DESTROY.
func readDestroy(server *os.File) error {
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil {
		return err
	}
	if op := binary.NativeEndian.Uint32(request[4:]); op != fuseDestroy {
		return fmt.Errorf("request %d, want %d", op, fuseDestroy)
	}
	return nil
}
