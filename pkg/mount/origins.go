package mount

import (
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// statmountSame is what a mount is of, and where it is.
const statmountSame = statmountBasic | statmountSuper | statmountRoot | statmountPoint

const (
	// originAge is how old what is known of a mount may be. A unique id stands for
	// the same mount of the same file system for ever, but the directory of it that
	// is mounted can be renamed.
	originAge = 10 * time.Second
	// listAge is how long only ids beyond the last one are listed. Younger mounts
	// have larger ids; one that was made without a place (fsmount, open_tree) gets
	// its place later.
	listAge = time.Second
)

// origin is what a mount is of: a directory of a file system.
type origin struct {
	dev  uint64
	root string
}

func (e Entry) origin() origin { return origin{e.Dev, e.Root} }

// origins finds the mounts of an origin. For each question it lists the mounts
// that are new, and asks only for those: a node with thousands of mounts is not
// read through for each one that goes. Those who ask at once share a list, which
// was made after each of them asked. Of mounts that went some may be named still. With
// the whole table read for each, 1,000 pods take 7.7 times the CPU (docs/performance.md).
type origins struct {
	list func(after uint64) ([]uint64, error) // ids larger than after
	stat func(id uint64) (Entry, error)       // unix.ENOENT: it is gone

	listing  sync.Mutex
	asked    time.Time // guarded by listing: when all were last asked for
	complete time.Time // guarded by listing: when all were last listed
	last     uint64    // guarded by listing: the largest id

	mu   sync.Mutex // guards the rest
	next *listed
	of   map[uint64]origin
	ids  map[origin][]uint64
}

// listed is a list that is about to be made.
type listed struct {
	done chan struct{}
	err  error
}

func newOrigins() *origins {
	return &origins{
		list: listMounts, stat: func(id uint64) (Entry, error) { return statMount(id, statmountSuper|statmountRoot) },
		of: map[uint64]origin{}, ids: map[origin][]uint64{},
	}
}

// same returns the ids of all mounts of what the mount e is of.
func (o *origins) same(e Entry) ([]uint64, error) {
	if err := o.refresh(); err != nil {
		return nil, err
	}
	ids, isNews := o.known(e)
	if !isNews {
		return ids, nil
	}
	o.listing.Lock()
	o.asked = time.Time{} // what was renamed since may be others' too
	o.listing.Unlock()
	if err := o.refresh(); err != nil {
		return nil, err
	}
	ids, _ = o.known(e)
	return ids, nil
}

// known returns what is known of the mounts of what e is of, and whether it is
// news that e is of that.
func (o *origins) known(e Entry) (ids []uint64, isNews bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of, known := o.of[e.ID]
	return slices.Clone(o.ids[e.origin()]), known && of != e.origin()
}

// refresh returns when all mounts are known that were there when it was called.
func (o *origins) refresh() error {
	o.mu.Lock()
	n := o.next
	first := n == nil
	if first {
		n = &listed{done: make(chan struct{})}
		o.next = n
	}
	o.mu.Unlock()
	if !first {
		<-n.done
		return n.err
	}
	o.listing.Lock()
	o.mu.Lock()
	o.next = nil // a caller from now on may have mounted something since
	o.mu.Unlock()
	n.err = o.read()
	o.listing.Unlock()
	close(n.done)
	return n.err
}

// read is called with listing held, without which no caller changes what is known.
func (o *origins) read() error {
	now, after := time.Now(), o.last
	anew := now.Sub(o.asked) > originAge
	all := anew || now.Sub(o.complete) > listAge
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
		o.complete = now
	}
	if anew {
		o.asked = now
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

// forget is called with mu held.
func (o *origins) forget(id uint64) {
	of := o.of[id]
	delete(o.of, id)
	if o.ids[of] = slices.DeleteFunc(o.ids[of], func(other uint64) bool { return other == id }); len(o.ids[of]) == 0 {
		delete(o.ids, of)
	}
}
