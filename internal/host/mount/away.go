package mount

import (
	"context"
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// Away runs calls that may wait for storage for ever, so that no unkillable thread
// belongs to this process. [*isolate.Pool] implements it, with [Service] as its service.
type Away interface {
	isolate.Doer
	// Hung returns an error that wraps [isolate.ErrHangs] while an abandoned call for key
	// has not returned.
	Hung(key string) error
}

// The calls that Away runs.
const (
	callUnmount = "unmount"
	callRemove  = "remove"
	callProbe   = "probe"
	callSize    = "size"
	callStatfs  = "statfs"
	callMapIDs  = "map-ids"
	callForce   = "force"
	callDetach  = "detach"
)

// request holds the arguments of a call.
type request struct {
	Roots   []string `json:"roots"`
	Without Feature  `json:"without,omitempty"`
	Path    string   `json:"path"`
	Flags   int      `json:"flags,omitempty"`
}

// MakeAway returns a Kernel that unmounts and removes trees through a. It still inspects
// paths itself: that asks the storage only to revalidate the root of a network file
// system, a wait that ends when the process is killed.
func (k *Kernel) MakeAway(a Away) *Kernel {
	c := *k
	c.away = a
	return &c
}

// Synchronous returns a Kernel whose calls are never abandoned. It is for a helper process,
// which is abandoned as a whole.
func (k *Kernel) Synchronous() *Kernel {
	c := *k
	c.away, c.lanes = nil, nil
	return &c
}

// Service returns the calls that a helper process runs for a daemon's Kernels.
func Service() isolate.Service {
	probed := sync.OnceValue(probe)
	answer := func(f func(ctx context.Context, k *Kernel, r request) (any, error)) isolate.Handler {
		return isolate.Handle(func(ctx context.Context, r request) (any, error) {
			// No lanes: the helper itself is abandoned if the call hangs.
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
			callStatfs:  answer(func(_ context.Context, k *Kernel, r request) (any, error) { return k.statfs(r.Path) }),
			callMapIDs:  answer(func(_ context.Context, k *Kernel, r request) (any, error) { return k.mapsIDs(r.Path) }),
			callProbe:   on(func(_ context.Context, k *Kernel, r request) error { return k.probe(r.Path) }),
			callRemove:  on(func(ctx context.Context, k *Kernel, r request) error { return k.removeTree(ctx, r.Path) }),
		},
		Errors: []error{ErrMounted, context.Canceled, context.DeadlineExceeded},
	}
}

// PathOf returns the path that a Kernel's call is about, given the call's key
// ([isolate.Config.OnReturn]).
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

// callAway makes a call on path that can be abandoned: through away, or else by f in a
// lane.
func (k *Kernel) callAway(ctx context.Context, call string, r request, f func() error) error {
	_, err := askAway(ctx, k, call, r, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// askAway is callAway for a call with a result.
func askAway[A any](ctx context.Context, k *Kernel, call string, r request, f func() (A, error)) (A, error) {
	if r.Flags&unix.MNT_FORCE != 0 { // must run while another unmount hangs, to end it
		call = callForce
	}
	if r.Flags&unix.MNT_DETACH != 0 { // likewise
		call = callDetach
	}
	if k.away == nil {
		return inLane(ctx, k.lanes, lane{call, r.Path}, f)
	}
	r.Roots, r.Without = k.roots, k.without
	key := r.Path
	if call == callForce || call == callDetach {
		key = call + " " + key // not blocked by a hanging unmount; see PathOf
	}
	return isolate.Ask[A](ctx, k.away, key, call, r)
}

// pendingUnmount returns an error while an abandoned unmount of path has not returned.
func (k *Kernel) pendingUnmount(path string) error {
	if k.away != nil {
		return k.away.Hung(path)
	}
	return k.lanes.leftBehind(lane{callUnmount, path})
}

// Probe returns nil if the storage behind the mount at path answers (statfs). Unlike
// other inspections it asks the storage, so it may take until ctx ends.
func (k *Kernel) Probe(ctx context.Context, path string) error {
	err := k.callAway(ctx, callProbe, request{Path: path}, func() error { return k.probe(path) })
	return wrap(err, "statfs %s", path)
}

func (k *Kernel) probe(path string) error {
	_, err := k.statfs(path)
	return err
}

// surelyNotMounted reports whether path does not exist or is certainly not a mount point.
// It looks only at the parent directory and never asks what is mounted at path.
func (k *Kernel) surelyNotMounted(path string) bool {
	if !k.has(OpenAt2) {
		return false
	}
	p, err := k.place(path)
	if err != nil {
		return missing(err)
	}
	defer p.close()
	fd, err := k.openAt(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW, within|unix.RESOLVE_NO_XDEV)
	if err == nil {
		unix.Close(fd)
		return true
	}
	return missing(err) && !errors.Is(err, unix.EXDEV)
}
