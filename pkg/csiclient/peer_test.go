package csiclient

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// listenAs listens on path as a process of user uid does.
func listenAs(path string, uid uint32) (l net.Listener, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	runtime.LockOSThread() // the thread has the user, and the listener keeps it
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); e != 0 {
		return nil, e
	}
	err = unix.Listen(fd, 16)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); e != 0 {
		panic(e) // the thread cannot be used any more
	}
	if err != nil {
		return nil, err
	}
	return net.FileListener(f)
}

// A process of another user is no driver: it would get secrets, and choose what root
// mounts. The operator may allow a user for one driver.
//
// Attacks: C37.
func TestAttackEndpointOfAnotherUserIsNoDriver(t *testing.T) {
	f := newFake()
	f.uid = 1000
	path := filepath.Join(t.TempDir(), "csi.sock")
	f.serve(t, path)
	for _, allowed := range [][]uint32{nil, {7}} {
		_, err := Dial(t.Context(), Config{Name: driverName, Endpoint: path, Root: t.TempDir(), Peers: allowed})
		e, ok := errors.AsType[*unixsocket.PeerError](err)
		if !ok || e.UID != 1000 || !strings.Contains(err.Error(), "--driver-uid=fake.example.com=1000") {
			t.Errorf("allowed %v: %v", allowed, err)
		}
	}
	if len(f.seen()) > 0 {
		t.Errorf("it was asked: %q", f.seen())
	}
	d, err := Dial(t.Context(), Config{Name: driverName, Endpoint: path, Root: t.TempDir(), Peers: []uint32{7, 1000}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// Every connection is checked: a process of another user that takes a dead driver's place
// gets nothing.
//
// Attacks: C37.
func TestAttackEndpointIsTakenOverByAnotherUser(t *testing.T) {
	n := connect(t, newFake())
	n.f.die()
	if err := n.news(); err == nil {
		t.Fatal("the driver's death is not told")
	}
	rogue := newFake()
	rogue.uid = 1000
	rogue.serve(t, n.socket)
	if conn, err := n.d.sock.dial(t.Context(), ""); conn != nil || !is[*unixsocket.PeerError](err) {
		t.Errorf("gRPC's dialer: %v, %v", conn, err)
	}
	if err := n.d.Stage(t.Context(), n.volume(state.Filesystem)); err == nil {
		t.Error("staged")
	}
	if len(rogue.seen()) > 0 {
		t.Errorf("the rogue was asked: %q", rogue.seen())
	}
	rogue.die()
	n.f.serve(t, n.socket)
	if err := n.news(); err != nil {
		t.Errorf("the driver is back: %v", err)
	}
}
