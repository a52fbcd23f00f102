package mount

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
)

// Away is where the calls are made that may wait for storage without end, so
// that a thread which nothing can wake is not one of this process.
// [*isolate.Pool] is one, with [Service] as what it does.
type Away interface {
	isolate.Doer
	// Left returns an error that wraps [isolate.ErrHangs] while a call for key that
	// was left behind has not returned.
	Left(key string) error
}

// The calls that are made away.
const (
	callUnmount = "unmount"
	callRemove  = "remove"
	callProbe   = "probe"
	callSize    = "size"
	callMapIDs  = "map-ids"
	callForce   = "force"
	callDetach  = "detach"
)

// request is what a call is to be made with.
type request struct {
	Roots   []string `json:"roots"`
	Without Feature  `json:"without,omitempty"`
	Path    string   `json:"path"`
	Flags   int      `json:"flags,omitempty"`
}

// MakeAway returns a Kernel that unmounts and removes trees by calls of a.
// What it looks at, it looks at itself: that asks the storage nothing but whether
// the root of a network file system is as it was, a wait that ends with the process.
func (k *Kernel) MakeAway(a Away) *Kernel {
	c := *k
	c.away = a
	return &c
}

// AtOnce returns a Kernel whose calls no caller leaves behind: for a helper, which
// is left behind as a whole.
func (k *Kernel) AtOnce() *Kernel {
	c := *k
	c.away, c.lanes = nil, nil
	return &c
}

// Service is what a helper does for the Kernels of a daemon.
func Service() isolate.Service {
	probed := sync.OnceValue(probe)
	answer := func(f func(ctx context.Context, k *Kernel, r request) (any, error)) isolate.Handler {
		return isolate.Handle(func(ctx context.Context, r request) (any, error) {
			// Without lanes: a helper is there to be left behind.
			return f(ctx, &Kernel{features: probed() &^ r.Without, roots: r.Roots}, r)
		})
	}
	on := func(f func(ctx context.Context, k *Kernel, r request) error) isolate.Handler {
		return answer(func(ctx context.Context, k *Kernel, r request) (any, error) { return nil, f(ctx, k, r) })
	}
	return isolate.Service{
		Handlers: map[string]isolate.Handler{
			callUnmount: on(unmountAway),
			callForce:   on(unmountAway),
			callDetach:  on(unmountAway),
			callSize:    answer(func(_ context.Context, k *Kernel, r request) (any, error) { return k.total(r.Path) }),
			callMapIDs:  answer(func(_ context.Context, k *Kernel, r request) (any, error) { return k.tryMapIDs(r.Path) }),
			callProbe:   on(func(_ context.Context, k *Kernel, r request) error { return k.probe(r.Path) }),
			callRemove:  on(func(ctx context.Context, k *Kernel, r request) error { return k.removeTree(ctx, r.Path) }),
		},
		Errors: []error{ErrMounted, context.Canceled, context.DeadlineExceeded},
	}
}

// PathOf is the path that a call of a Kernel is about, by the key that it was made
// with ([isolate.Config.OnReturn]).
func PathOf(key string) string {
	for _, call := range []string{callForce, callDetach} {
		if path, ok := strings.CutPrefix(key, call+" "); ok {
			return path
		}
	}
	return key
}

func unmountAway(_ context.Context, k *Kernel, r request) error {
	return k.unmountLayers(r.Path, r.Flags)
}

// elsewhere makes a call on path where it can be left behind: away, or else in
// a lane by f.
func (k *Kernel) elsewhere(ctx context.Context, call string, r request, f func() error) error {
	_, err := ask(ctx, k, call, r, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// ask is elsewhere for a call with an answer.
func ask[A any](ctx context.Context, k *Kernel, call string, r request, f func() (A, error)) (A, error) {
	if r.Flags&unix.MNT_FORCE != 0 { // it is there to end the one that hangs
		call = callForce
	}
	if r.Flags&unix.MNT_DETACH != 0 { // and so is this
		call = callDetach
	}
	if k.away == nil {
		return inLane(ctx, k.lanes, lane{call, r.Path}, f)
	}
	r.Roots, r.Without = k.roots, k.without
	key := r.Path
	if call == callForce || call == callDetach {
		key = call + " " + key // of its own, see PathOf
	}
	return isolate.Ask[A](ctx, k.away, key, call, r)
}

// left returns an error while an unmount of path that was left behind has not returned.
func (k *Kernel) left(path string) error {
	if k.away != nil {
		return k.away.Left(path)
	}
	return k.lanes.leftBehind(lane{callUnmount, path})
}

// Probe returns nil if the storage behind the mount at path answers (statfs). It
// asks, as nothing else of a Kernel does, so it may take as long as ctx lets it.
func (k *Kernel) Probe(ctx context.Context, path string) error {
	err := k.elsewhere(ctx, callProbe, request{Path: path}, func() error { return k.probe(path) })
	return wrap(err, "statfs %s", path)
}

func (k *Kernel) probe(path string) error {
	_, err := k.statfs(path)
	return err
}

// plain reports whether there is nothing at path, or something on which nothing
// is mounted, by looking at the directory that it is in. It is what can be told
// in every case, without asking what is mounted there.
func (k *Kernel) plain(path string) bool {
	if !k.has(OpenAt2) {
		return false
	}
	p, err := k.place(path)
	if err != nil {
		return missing(err)
	}
	defer p.close()
	if strings.Contains(p.name, "..") || filepath.Base(path) == "." {
		return false
	}
	fd, err := k.openAt(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW, beneath|unix.RESOLVE_NO_XDEV)
	if err == nil {
		unix.Close(fd)
		return true
	}
	return missing(err) && !errors.Is(err, unix.EXDEV)
}
