package mount

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

func TestUnmountRemovesEveryLayer(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		for range 5 {
			must(t, k.Tmpfs(target, TmpfsOptions{}))
		}
		if got := look(t, k, target).Layers; got != 5 {
			t.Fatalf("%d layers, want 5", got)
		}
		must(t, k.Unmount(t.Context(), target))
		if got := look(t, k, target); got.Mounted || !got.Exists {
			t.Errorf("after Unmount: %+v", got)
		}
	})
}

func TestUnmountOfNothingIsDone(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		mounted := mkdir(t, dir, "mounted")
		must(t, k.Tmpfs(mounted, TmpfsOptions{}))
		for _, path := range []string{
			mkdir(t, dir, "plain"), write(t, dir+"/file", ""), dir + "/absent", dir + "/absent/below",
			dir + "/file/below", link(t, mounted, dir+"/link"),
		} {
			if err := k.Unmount(t.Context(), path); err != nil {
				t.Error(err)
			}
			must(t, k.Detach(t.Context(), path))
		}
		if !look(t, k, mounted).Mounted {
			t.Error("a link was followed")
		}
	})
}

func TestUnmountSaysWhoKeepsItBusy(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		must(t, k.Tmpfs(target, TmpfsOptions{}))
		f, err := os.Create(target + "/open")
		must(t, err)
		must(t, k.Tmpfs(mkdir(t, target, "sub"), TmpfsOptions{}))

		err = k.Unmount(t.Context(), target)
		busy, ok := errors.AsType[*BusyError](err)
		if !ok || !errors.Is(err, unix.EBUSY) {
			t.Fatalf("error %v, want a BusyError of EBUSY", err)
		}
		if len(busy.Mounts) != 1 || busy.Mounts[0] != target+"/sub" {
			t.Errorf("mounts %q", busy.Mounts)
		}
		if len(busy.Holders) != 1 || busy.Holders[0].PID != os.Getpid() || busy.Holders[0].Path != target+"/open" {
			t.Errorf("holders %v", busy.Holders)
		}
		for _, word := range []string{target + ":", target + "/sub", target + "/open", fmt.Sprintf("pid %d", os.Getpid())} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not name %s", err, word)
			}
		}
		must(t, f.Close())
		must(t, k.Unmount(t.Context(), target+"/sub"))
		must(t, k.Unmount(t.Context(), target))
	})
}

func TestALoopDeviceIsNamedAsHolder(t *testing.T) {
	device := ext4Device(t)
	backing, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
	must(t, err)
	image := strings.TrimSpace(string(backing))
	found := holders(t.Context(), filepath.Dir(image))
	if len(found) == 0 || found[0] != (Holder{Name: filepath.Base(device), Path: image}) {
		t.Errorf("holders of %s: %v, want %s first", filepath.Dir(image), found, device)
	}
}

func TestDetachTakesWhatIsBusy(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		must(t, k.Tmpfs(target, TmpfsOptions{}))
		must(t, k.Tmpfs(target, TmpfsOptions{}))
		f, err := os.Create(target + "/open")
		must(t, err)
		defer f.Close()
		must(t, k.Tmpfs(mkdir(t, target, "sub"), TmpfsOptions{}))
		must(t, k.Detach(t.Context(), target))
		if entries, err := k.List(t.Context(), target); err != nil || len(entries) != 0 {
			t.Errorf("left: %+v, %v", entries, err)
		}
	})
}

func TestEndedContextBeginsNothing(t *testing.T) {
	k, dir := New(), scratch(t)
	target := mkdir(t, dir, "target")
	must(t, k.Tmpfs(target, TmpfsOptions{}))
	reason := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if err := k.Unmount(ctx, target); !errors.Is(err, reason) {
		t.Errorf("Unmount: %v, want the context's cause", err)
	}
	if _, err := k.Look(ctx, target); !errors.Is(err, reason) {
		t.Errorf("Look: %v, want the context's cause", err)
	}
	if err := k.RemoveTree(ctx, dir, "target"); !errors.Is(err, reason) {
		t.Errorf("RemoveTree: %v, want the context's cause", err)
	}
	if !look(t, k, target).Mounted {
		t.Error("it was unmounted")
	}
}

// Rule 9: a hanging call is left behind when its caller's time is over; until it returns
// the next ones fail at once, and say since when it hangs; then they can run.
func TestHungCallCostsOneThreadAndNotItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{busy: make(map[lane]*pendingCall)}
		storage := make(chan struct{})
		var begun int
		hang := func() (int, error) { begun++; <-storage; return begun, nil }
		a, b := lane{"look", "/a"}, lane{"look", "/b"}

		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := inLane(ctx, l, a, hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hung call: %v", err)
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := inLane(ctx, l, a, hang)
			if hung, ok := errors.AsType[*isolate.HangError](err); !ok || !hung.Since.Equal(began) || hung.Key != "/a" {
				t.Errorf("the next call: %v, want a HangError since %v", err, began)
			}
			cancel()
		}
		if time.Since(began) != time.Minute {
			t.Errorf("the next calls took %v", time.Since(began)-time.Minute)
		}
		synctest.Wait()
		if begun != 1 {
			t.Errorf("%d calls hang, want one", begun)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if v, err := inLane(ctx, l, b, func() (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("another key: %d, %v", v, err)
		}
		close(storage)
		synctest.Wait()
		if v, err := inLane(ctx, l, a, hang); v != 2 || err != nil {
			t.Errorf("after the storage came back: %d, %v", v, err)
		}
		synctest.Wait()
		if len(l.busy) != 0 {
			t.Errorf("lanes left: %v", l.busy)
		}
	})
}

// The same with the kernel itself: a file system whose server does not confirm the unmount
// delays umount(2), and no other call. With a helper, it is the helper that hangs.
//
// Faults: A043.
func TestUnmountReturnsWhenItsTimeIsOver(t *testing.T) {
	pool := isolate.New(isolate.Config{Command: helperCommand, Service: Service()})
	t.Cleanup(func() { must(t, pool.Close()) })
	for name, k := range map[string]*Kernel{"in a lane": New(), "in a helper": New().MakeAway(pool)} {
		t.Run(name, func(t *testing.T) { testUnmountReturns(t, k) })
	}
}

func testUnmountReturns(t *testing.T, k *Kernel) {
	device := ext4Device(t)
	dir := scratch(t)
	target := mkdir(t, dir, "target")
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	defer server.Close()
	data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,blksize=4096,fd=%d", server.Fd())
	must(t, unix.Mount(device, target, "fuseblk", 0, data))
	serveInit(t, server)

	reason := errors.New("time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	var destroy []byte
	read := make(chan error, 1)
	go func() {
		for {
			request := make([]byte, 1<<17)
			_, err := unix.Read(int(server.Fd()), request)
			if err != nil || binary.NativeEndian.Uint32(request[4:]) == fuseDestroy {
				destroy = request
				read <- err
				cancel(reason) // umount(2) is waiting now
				return
			}
		}
	}()
	if err := k.Unmount(ctx, target); !errors.Is(err, reason) || !strings.Contains(err.Error(), target) {
		t.Errorf("Unmount: %v, want the context's cause with the path", err)
	}
	must(t, <-read)
	// Nothing is visible at the target any more, but the storage is still in use.
	if err := k.Unmount(t.Context(), target); look(t, k, target).Mounted || !errors.Is(err, isolate.ErrHangs) {
		t.Errorf("Unmount again: %v, want that unmount hangs", err)
	}
	if k.away != nil {
		err := k.RemoveTree(t.Context(), dir, "target")
		if hung, ok := errors.AsType[*isolate.HangError](err); !ok || hung.Call != callUnmount {
			t.Errorf("RemoveTree: %v, want that unmount hangs", err)
		}
	}
	other := mkdir(t, dir, "other")
	must(t, k.Tmpfs(other, TmpfsOptions{}))
	must(t, k.Unmount(t.Context(), other))
	must(t, fuseReply(server, destroy, nil)) // it ends only now: nothing interrupted it
	err = k.Unmount(t.Context(), target)
	for errors.Is(err, isolate.ErrHangs) { // until the hanging call has returned
		runtime.Gosched()
		err = k.Unmount(t.Context(), target)
	}
	must(t, err)
	if look(t, k, target).Mounted {
		t.Error("it is still mounted")
	}
}

const fuseDestroy = 38 // FUSE_DESTROY of uapi linux/fuse.h

// serveInit answers the first request of a FUSE file system.
func serveInit(t *testing.T, server *os.File) {
	t.Helper()
	request := make([]byte, 1<<17)
	_, err := unix.Read(int(server.Fd()), request)
	must(t, err)
	reply := make([]byte, 64) // struct fuse_init_out
	binary.NativeEndian.PutUint32(reply[0:], 7)
	binary.NativeEndian.PutUint32(reply[4:], 31)
	binary.NativeEndian.PutUint32(reply[20:], 1<<16) // max_write
	must(t, fuseReply(server, request, reply))
}

func fuseReply(server *os.File, request, body []byte) error {
	b := make([]byte, 16, 16+len(body))
	binary.NativeEndian.PutUint32(b, uint32(16+len(body)))
	copy(b[8:16], request[8:16]) // the request's id
	_, err := unix.Write(int(server.Fd()), append(b, body...))
	return err
}
