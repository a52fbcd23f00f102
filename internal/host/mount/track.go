package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// Tracker lists the mounts below one directory repeatedly. It remembers which mounts are
// elsewhere, so that a list costs only as much as the mounts below the directory and the
// new ones: 20,000 mounts elsewhere take 20 system calls to list their ids instead of
// 20,000 to read them.
//
// Until [Tracker.Forget] it misses a mount that is moved from elsewhere to below the
// directory (mount --move). Many goroutines may use it.
type Tracker struct {
	k     *Kernel
	under string

	mu        sync.Mutex
	elsewhere []uint64 // unique ids of mounts not below under, ascending; guarded by mu
	sizeHint  int      // the capacity for the next list: the last length and a few more; guarded by mu
}

// Track returns a Tracker of the mounts at and below the directory under.
func (k *Kernel) Track(under string) *Tracker { return &Tracker{k: k, under: under} }

// Forget makes the next list read every mount of the node.
func (t *Tracker) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.elsewhere = nil
}

// statmountPlace is what a Tracker asks for. It reads each of its mounts again for each
// list, because a mount may have been moved.
const statmountPlace = statmountBasic | statmountSuper | statmountPoint | statmountFSType

// List is [Kernel.List] of the Tracker's directory without Root and Source, which cost as
// much as all the rest and may be missing.
func (t *Tracker) List(ctx context.Context) ([]Entry, error) {
	if !t.k.has(MountID) { // the ids in mountinfo are reused and so useless here
		return t.k.List(ctx, t.under)
	}
	entries, err := inLane(ctx, t.k.lanes, lane{"list", t.under}, t.list)
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", t.under, err)
	}
	return entries, nil
}

func (t *Tracker) list() ([]Entry, error) {
	path, err := t.k.canonical(t.under)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ids, err := listMounts(0)
	if err != nil {
		return nil, os.NewSyscallError("listmount", err)
	}
	elsewhere, ask := split(ids, t.elsewhere)
	entries := make([]Entry, 0, min(len(ask), t.sizeHint))
	for _, id := range ask {
		e, err := statMount(id, statmountPlace)
		switch {
		case errors.Is(err, unix.ENOENT): // unmounted since it was listed
		case err != nil:
			return nil, os.NewSyscallError("statmount", err)
		case pathname.Within(e.Path, path):
			entries = append(entries, e)
		default:
			elsewhere = append(elsewhere, id)
		}
	}
	slices.Sort(elsewhere)
	t.elsewhere, t.sizeHint = elsewhere, len(entries)+len(entries)/4
	sortByDepth(entries, func(e Entry) (uint64, uint64) { return e.ID, e.ParentID })
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	return entries, nil
}

// split returns which of ids are in known and which are not; both slices are ascending.
func split(ids, known []uint64) (in, out []uint64) {
	in = make([]uint64, 0, len(ids))
	for _, id := range ids {
		for len(known) > 0 && known[0] < id {
			known = known[1:]
		}
		if len(known) > 0 && known[0] == id {
			in = append(in, id)
		} else {
			out = append(out, id)
		}
	}
	return in, out
}
