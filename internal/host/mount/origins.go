package mount

import (
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// statmountSame asks for a mount's origin and mount point.
const statmountSame = statmountOrigin | statmountBasic | statmountPoint

const (
	// originAge is how old the knowledge about a mount may be. A unique id belongs to the
	// same mount of the same file system for ever, but the mounted directory can be
	// renamed.
	originAge = 10 * time.Second
	// listAge is how long it suffices to list ids beyond the last one. Newer mounts have
	// larger ids, but a detached mount (fsmount, open_tree) is attached later.
	listAge = time.Second
)

// origin is what is mounted: a directory of a file system.
type origin struct {
	dev  uint64
	root string
}

func (e Entry) origin() origin { return origin{e.Dev, e.Root} }

// origins finds all mounts of an origin. For each query it lists the new mounts and reads
// only those, so that a node with thousands of mounts does not read all of them for each
// unmount. Concurrent queries share a list that was made after each of them began. The
// result may include mounts that have just been unmounted. Reading the whole table for
// each query, 1,000 pods take 7.7 times the CPU (docs/performance.md).
type origins struct {
	list func(after uint64) ([]uint64, error) // ids larger than after
	stat func(id uint64) (Entry, error)       // unix.ENOENT: unmounted

	listing      sync.Mutex
	lastFullRead time.Time // guarded by listing: when all mounts were last read
	lastFullList time.Time // guarded by listing: when all mounts were last listed
	last         uint64    // guarded by listing: the largest id

	mu   sync.Mutex // guards the rest
	next *pendingList
	of   map[uint64]origin
	ids  map[origin][]uint64
}

// pendingList is a list that has not been made yet.
type pendingList struct {
	done chan struct{}
	err  error
}

func newOrigins() *origins {
	return &origins{
		list: listMounts, stat: func(id uint64) (Entry, error) { return statMount(id, statmountOrigin) },
		of: map[uint64]origin{}, ids: map[origin][]uint64{},
	}
}

// same returns the ids of all mounts with the origin of e, or errRootHidden.
func (o *origins) same(e Entry) ([]uint64, error) {
	if e.lacksRoot() {
		return nil, errRootHidden
	}
	if err := o.refresh(); err != nil {
		return nil, err
	}
	ids, moved := o.known(e)
	if !moved {
		return ids, nil
	}
	o.listing.Lock()
	o.lastFullRead = time.Time{} // the directory was renamed; others may have been, too
	o.listing.Unlock()
	if err := o.refresh(); err != nil {
		return nil, err
	}
	ids, _ = o.known(e)
	return ids, nil
}

// known returns the known mounts with e's origin, and whether e was known with another
// origin.
func (o *origins) known(e Entry) (ids []uint64, moved bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of, known := o.of[e.ID]
	return slices.Clone(o.ids[e.origin()]), known && of != e.origin()
}

// refresh returns once all mounts that existed when it was called are known.
func (o *origins) refresh() error {
	o.mu.Lock()
	n := o.next
	first := n == nil
	if first {
		n = &pendingList{done: make(chan struct{})}
		o.next = n
	}
	o.mu.Unlock()
	if !first {
		<-n.done
		return n.err
	}
	o.listing.Lock()
	o.mu.Lock()
	o.next = nil // a later caller needs a newer list
	o.mu.Unlock()
	n.err = o.read()
	o.listing.Unlock()
	close(n.done)
	return n.err
}

// read updates what is known about the mounts. It must be called with listing held.
func (o *origins) read() error {
	now, after := time.Now(), o.last
	anew := now.Sub(o.lastFullRead) > originAge
	all := anew || now.Sub(o.lastFullList) > listAge
	if all {
		after = 0
	}
	ids, err := o.list(after)
	if err != nil {
		return os.NewSyscallError("listmount", err)
	}
	there, found := make(map[uint64]struct{}, len(ids)), map[uint64]origin{}
	for _, id := range ids {
		there[id] = struct{}{}
		if _, known := o.of[id]; known && !anew {
			continue
		}
		e, err := o.stat(id)
		if err == unix.ENOENT {
			continue // unmounted since it was listed
		}
		if err != nil {
			return os.NewSyscallError("statmount", err)
		}
		found[id], o.last = e.origin(), max(o.last, id)
	}
	if all {
		o.lastFullList = now
	}
	if anew {
		o.lastFullRead = now
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if all {
		for id := range o.of {
			if _, is := there[id]; !is || anew {
				o.forget(id)
			}
		}
	}
	for id, of := range found {
		o.of[id] = of
		o.ids[of] = append(o.ids[of], id)
	}
	return nil
}

// forget must be called with mu held.
func (o *origins) forget(id uint64) {
	of := o.of[id]
	delete(o.of, id)
	if o.ids[of] = slices.DeleteFunc(o.ids[of], func(other uint64) bool { return other == id }); len(o.ids[of]) == 0 {
		delete(o.ids, of)
	}
}
