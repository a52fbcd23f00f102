package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// A mount whose server does not answer cannot be unmounted normally while a process waits
// for the server. Force makes the waiting call fail, and the mount goes after that, even if
// an earlier call for the path was left behind.
func TestForceEndsWhoWaitsForTheServer(t *testing.T) {
	pool := isolate.New(isolate.Config{Command: helperCommand, Service: Service()})
	t.Cleanup(func() { must(t, pool.Close()) })
	for name, k := range map[string]*Kernel{"here": New(), "away": New().MakeAway(pool)} {
		t.Run(name, func(t *testing.T) {
			target := mkdir(t, scratch(t), "target")
			waiter := frozen(t, target)
			if err := k.Unmount(t.Context(), target); !errors.Is(err, unix.EBUSY) {
				t.Fatalf("a normal unmount: %v, want EBUSY", err)
			}
			_ = k.Force(t.Context(), target) // the waiting process may not have ended yet
			if err := <-waiter; err == nil {
				t.Error("who waited has an answer")
			}
			must(t, k.Force(t.Context(), target))
			if PathOf(callForce+" "+target) != target || PathOf(callDetach+" "+target) != target || PathOf(target) != target {
				t.Error("the path of a call is not known by its key")
			}
			if got := look(t, k, target); got.Mounted {
				t.Errorf("after Force: %+v", got)
			}
		})
	}
}

// frozen mounts at path a FUSE file system whose server answers nothing, and returns once a
// caller waits for it; the channel then gets the error of that caller.
func frozen(t *testing.T, path string) <-chan error {
	t.Helper()
	server := mountFUSE(t, path)
	request := make([]byte, 1<<17)
	waiter := make(chan error, 1)
	go func() {
		var st unix.Stat_t
		waiter <- unix.Stat(path+"/x", &st)
	}()
	_, err := unix.Read(int(server.Fd()), request) // a process asks, and waits from now on
	must(t, err)
	return waiter
}

// mountFUSE mounts at path a FUSE file system whose server answers the first request and no
// other, until it is closed.
func mountFUSE(t *testing.T, path string) *os.File {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { server.Close() }) // closing it twice is harmless
	must(t, unix.Mount("frozen", path, "fuse.frozen", 0, fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,fd=%d", server.Fd())))
	request := make([]byte, 1<<17)
	_, err = unix.Read(int(server.Fd()), request)
	must(t, err)
	reply := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16]) // the request's id
	binary.NativeEndian.PutUint32(reply[16:], 7)
	binary.NativeEndian.PutUint32(reply[20:], 31)
	binary.NativeEndian.PutUint32(reply[36:], 1<<16) // max_write
	_, err = unix.Write(int(server.Fd()), reply)
	must(t, err)
	return server
}

// The kernel tells whether a FUSE file system has a server without asking that server, so a
// server that does not answer delays nothing.
func TestWhetherAFUSEFileSystemIsServedIsKnownWithoutAskingIt(t *testing.T) {
	dir := scratch(t)
	k := New()
	plain, target := mkdir(t, dir, "plain"), mkdir(t, dir, "target")
	if _, err := k.FUSEServed(t.Context(), plain); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a plain directory: %v", err)
	}
	server := mountFUSE(t, target)
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
	if connectionOf(fmt.Sprintf("/proc/self/fdinfo/%d", server.Fd())) == "" {
		t.Skip("this kernel does not say what /dev/fuse is open for: Linux 6.14 does")
	}
	served := func() bool {
		t.Helper()
		for {
			k.fuse.scanned = time.Time{}
			yes, err := k.FUSEServed(t.Context(), target)
			if !errors.Is(err, errors.ErrUnsupported) { // else another process is about to mount something
				must(t, err)
				return yes
			}
		}
	}
	for range 2 { // the second time by the server found the first time
		if !served() {
			t.Error("it is served and said not to be")
		}
	}
	must(t, unix.Unmount(target, unix.UMOUNT_NOFOLLOW)) // no process holds it
	must(t, server.Close())
	server = mountFUSE(t, target)
	must(t, server.Close())
	if served() {
		t.Error("it has no server, and the kernel says it has one")
	}
	if err := k.Probe(t.Context(), target); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("and it is asked: %v", err)
	}
}

// The kernel gives the number of a connection again once its file system is unmounted, while
// a process may still have that one's /dev/fuse open.
func TestAProcessWhoseFileSystemIsGoneServesNoOther(t *testing.T) {
	if _, err := unix.PidfdGetfd(-1, 0, 0); err == unix.ENOSYS || err == unix.EPERM {
		t.Skip("this kernel lacks pidfd_getfd, which Linux 5.6 has")
	}
	dir := scratch(t)
	k := New()
	gone, target := mkdir(t, dir, "gone"), mkdir(t, dir, "target")
	number := func(server *os.File) string { return connectionOf(fmt.Sprintf("/proc/self/fdinfo/%d", server.Fd())) }
	for {
		stale := mountFUSE(t, gone)
		if number(stale) == "" {
			t.Skip("this kernel does not say what /dev/fuse is open for: Linux 6.14 does")
		}
		must(t, unix.Unmount(gone, unix.UMOUNT_NOFOLLOW))
		server := mountFUSE(t, target)
		if number(stale) != number(server) { // another process took the number
			must(t, unix.Unmount(target, unix.UMOUNT_NOFOLLOW))
			must(t, server.Close())
			must(t, stale.Close())
			continue
		}
		t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
		must(t, server.Close())
		for range 2 { // the second time with what the first has found
			k.fuse.scanned = time.Time{}
			yes, err := k.FUSEServed(t.Context(), target)
			if !errors.Is(err, errors.ErrUnsupported) { // else another process is about to mount something
				must(t, err)
			}
			if yes {
				t.Error("its server is gone, and another file system's counts as its server")
			}
		}
		return
	}
}
