package mount

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// A helper's call has the same effect and errors as a call in this process, on every
// kernel, and a helper is asked nothing if there is nothing to do.
func TestAwayIsAsHere(t *testing.T) {
	pool := isolate.New(isolate.Config{Command: helperCommand, Service: Service()})
	t.Cleanup(func() { must(t, pool.Close()) })
	onEachKernel(t, func(t *testing.T, here *Kernel, dir string) {
		k := here.MakeAway(pool)
		target := mkdir(t, dir, "target")
		must(t, k.Unmount(t.Context(), target)) // not a mount
		must(t, k.Unmount(t.Context(), target+"/missing"))
		for range 3 {
			must(t, k.Tmpfs(target, TmpfsOptions{}))
		}
		inside := write(t, mkdir(t, target, "sub")+"/f", "kept")
		if err := k.RemoveTree(t.Context(), dir, "target"); !errors.Is(err, ErrMounted) {
			t.Errorf("RemoveTree of a mount: %v, want ErrMounted", err)
		}
		if read(t, inside) != "kept" {
			t.Error("it was removed through the mount")
		}
		fd, err := unix.Open(inside, unix.O_RDONLY, 0)
		must(t, err)
		busy, ok := errors.AsType[*BusyError](k.Unmount(t.Context(), target))
		if !ok || len(busy.Holders) == 0 || !errors.Is(busy, unix.EBUSY) {
			t.Errorf("Unmount of what is in use: %v, want a BusyError with its holder", busy)
		}
		must(t, unix.Close(fd))
		must(t, k.Unmount(t.Context(), target))
		if got := look(t, k, target); got.Mounted {
			t.Errorf("after Unmount: %+v", got)
		}
		write(t, mkdir(t, target, "a/b")+"/f", "x")
		must(t, k.RemoveTree(t.Context(), dir, "target"))
		if exists(target) {
			t.Error("the tree is still there")
		}
	})
}

// A call is not begun if its caller no longer waits for it.
func TestAwayHeedsItsContext(t *testing.T) {
	needs(t, OpenAt2)
	k := New().MakeAway(noHelper{t})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if err := k.Unmount(ctx, "/"+t.Name()); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
	must(t, k.Unmount(t.Context(), t.TempDir())) // nothing is mounted there
}

// noHelper fails the test if it is asked anything.
type noHelper struct{ t *testing.T }

func (n noHelper) Do(_ context.Context, key, call string, _ []byte) ([]byte, error) {
	n.t.Errorf("%s of %s was called", call, key)
	return nil, nil
}

func (noHelper) Hung(string) error { return nil }

// answers is a helper that gives one answer to every call.
type answers string

func (a answers) Do(context.Context, string, string, []byte) ([]byte, error) { return []byte(a), nil }
func (answers) Hung(string) error                                            { return nil }

// Only the helper resolves a path that may lead through a volume: here there is nothing at it.
func TestPathsInVolumesAreResolvedAway(t *testing.T) {
	path := t.TempDir() + "/none/none"
	if m, err := New().MakeAway(answers(`{"IDs": true, "FSType": "ext4"}`)).MapsIDs(t.Context(), path); err != nil || !m.IDs || m.FSType != "ext4" {
		t.Errorf("MapsIDs: %+v, %v", m, err)
	}
	if st, err := New().MakeAway(answers(`{"Blocks": 7}`)).Statfs(t.Context(), path); err != nil || st.Blocks != 7 {
		t.Errorf("Statfs: %+v, %v", st, err)
	}
}

// A probe asks the storage: a hanging server does not answer it, a dead one gives an error,
// and neither delays other calls.
func TestProbeAsksTheStorage(t *testing.T) {
	pool := isolate.New(isolate.Config{Command: helperCommand, Service: Service()})
	t.Cleanup(func() { must(t, pool.Close()) })
	for name, k := range map[string]*Kernel{"in a lane": New(), "in a helper": New().MakeAway(pool)} {
		t.Run(name, func(t *testing.T) {
			dir := scratch(t)
			fine, target := mkdir(t, dir, "fine"), mkdir(t, dir, "hung")
			must(t, k.Tmpfs(fine, TmpfsOptions{}))
			must(t, k.Probe(t.Context(), fine))
			server := mountFuse(t, target)
			serveInit(t, server)
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("time is over")
			asked := make(chan error, 1)
			go func() {
				_, err := unix.Read(int(server.Fd()), make([]byte, 1<<17)) // the question, which this server never answers
				asked <- err
				cancel(reason)
			}()
			if err := k.Probe(ctx, target); !errors.Is(err, reason) {
				t.Errorf("of a server that hangs: %v", err)
			}
			must(t, <-asked)
			must(t, k.Probe(t.Context(), fine))
			must(t, server.Close())
			// The earlier question has its answer now: an error.
			for {
				err := k.Probe(t.Context(), target)
				if errors.Is(err, isolate.ErrHangs) {
					continue
				}
				if !errors.Is(err, unix.ENOTCONN) {
					t.Errorf("of a server that is dead: %v", err)
				}
				break
			}
			must(t, k.Unmount(t.Context(), target))
			must(t, k.Unmount(t.Context(), fine))
		})
	}
}
