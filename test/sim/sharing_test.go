package sim

import (
	"context"
	"math/rand/v2"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// copies are the snapshots that another author names by their handle at the storage, where another
// record has them.
var copies = map[string]string{"c0": "snapshot-s0", "c1": "snapshot-s1"}

// copyOf returns a snapshot that is named by its handle.
func copyOf(name string) controller.Snapshot {
	return controller.Snapshot{
		Key: keyOf(name), UID: name, Handle: copies[name], Mode: state.Filesystem,
		Class: controller.SnapshotClass{Name: "c", Driver: volumes["pvc-0"].driver},
	}
}

// only reports whether the storage has, or is deleting, a snapshot under the name that this one would
// get, which now is another author's alone: what is made anew would be the old one. mu is held.
func (w *world) only(name string) bool {
	for of, handle := range copies {
		_, left := w.life.c.Snapshot(keyOf(of))
		if handle == "snapshot-"+aloneAs(name) && (left || w.cuts[of] || w.orders[of] > 0) {
			return true
		}
	}
	return false
}

// known reports whether an author can know the handle: the snapshot's own record has it. mu is held.
func (w *world) known(handle string) bool {
	s, _ := w.life.c.Snapshot(keyOf(ownerOf(handle)))
	return s.Handle == handle && w.shelf[handle] != nil
}

// share notes which authors have the snapshot that they named; mu is held.
func (j *judge) share(l *life) {
	for name, handle := range copies {
		s, _ := l.c.Snapshot(keyOf(name))
		j.has[name] = j.w.cuts[name] && s.Ready && s.Handle == handle
	}
}

// shared checks, when a call to delete a snapshot begins, that no other author has the snapshot; mu
// is held.
func (j *judge) shared(id string) {
	for name, handle := range copies {
		if handle == id && j.has[name] && j.w.orders[name] == 0 && j.w.shelf[id] != nil && !j.w.disk.damaged {
			j.w.breach("snapshots: DeleteSnapshot of %s, which %s has too, and its owner keeps it", id, name)
		}
	}
}

// spares returns a claim's deletion, which may not take the data of a volume that another author
// lists; mu is held.
func (w *world) spares(name string, takes bool, deletion func(context.Context) error) func(context.Context) error {
	l := w.life
	s, _ := l.c.Claim(keyOf(name))
	if !w.foreign[name] || !takes || s.Volume == nil || s.Phase == controller.Deleting {
		return deletion
	}
	return func(ctx context.Context) error {
		err := deletion(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.foreign[name] {
			w.breach("claims: an order to delete the data of %s was accepted, and another author lists its volume", name)
		}
		return err
	}
}

// sharing returns steps of another author, who names what the first one has.
func sharing(r *rand.Rand) []string {
	of := []string{"0", "0", "1"}[r.IntN(3)]
	switch roll := r.IntN(16); {
	case roll < 6:
		return []string{"cut s" + of, "wait 3s", "cut c" + of, "wait 3s"}
	case roll < 8:
		return []string{"uncut c" + of + " data", "wait 3s"}
	case roll < 10:
		return []string{"uncut s" + of + " data", "wait 3s"}
	case roll < 11:
		return []string{"uncut s" + of + " data", "uncut c" + of}
	case roll < 13:
		return []string{"list pvc-0"}
	case roll < 14:
		return []string{"unlist pvc-0"}
	case roll < 15:
		return []string{"list pvc-0", "remove a", "remove b", "remove c", "wait 3s", "unclaim pvc-0 data", "wait 3s"}
	default:
		return []string{"cut c" + of}
	}
}
