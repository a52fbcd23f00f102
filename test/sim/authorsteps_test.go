package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
)

// unlist removes a PersistentVolume from what persons list; mu is held.
func (w *world) unlist(name string) {
	delete(w.authors.pvs, name)
	w.orphans()
}

// orphans ends the markers of data that neither its claim nor a PersistentVolume lists: a volume
// that comes back is free. mu is held.
func (w *world) orphans() {
	a := w.authors
	for handle, m := range a.markers {
		_, asks := a.asks[m.claim]
		for _, v := range a.pvs {
			asks = asks || v.handle == handle
		}
		if !asks {
			delete(a.markers, handle)
		}
	}
}

// given notes that a person gives the data of a volume to the claim that its claimRef names; mu is
// held.
func (w *world) given(name string, was pv) {
	a, v := w.authors, w.authors.pvs[name]
	if m := a.markers[v.handle]; v.ref != "" && v.ref != m.claim || v.ref == "" && was.ref != "" && was.handle == v.handle {
		delete(a.markers, v.handle)
	}
	for _, other := range []string{name, name + "-other"} {
		if other != v.handle {
			delete(a.markers, other) // the name is another volume's now, and no record knows the former one
		}
	}
}

// give is an operator who releases a volume with its data, for the next claim; mu is held.
func (w *world) give(name string) {
	a, f, handle := w.authors, w.life.front, w.authors.pvs[name].handle
	was, marked := a.markers[handle]
	delete(a.markers, handle)
	go func() {
		_, err := f.binder.ReleaseVolume(context.Background(), name)
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, again := a.markers[handle]; marked && !again && (errors.Is(err, binding.ErrOwned) || errors.Is(err, binding.ErrNoOwner)) {
			a.markers[handle] = was
		}
	}()
}

// rebooted: no mount is left.
func (a *authors) rebooted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.pods)
}

// robbed makes the storage's truth what the spare copy of the journal can know: whose the data is
// that came later, no record says. mu is held.
func (a *authors) robbed(life int) {
	for handle, m := range a.markers {
		if a.spare[handle] != m {
			delete(a.markers, handle)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for claim, h := range a.pods {
		h.recorded = h.recorded && h.life != life
		a.pods[claim] = h
	}
}

// housed checks that each listed claim that had a volume has it again; mu is held.
func (w *world) housed() {
	a := w.authors
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, claim := range sortedKeys(a.using) {
		named, listed := a.asks[claim]
		var had []string
		refs := 0
		for name, v := range a.pvs {
			if v.ref == claim {
				refs++
			}
			if m := a.markers[v.handle]; listed && m == (marker{claim, named}) && (v.ref == "" || v.ref == claim) && (named == "" || named == name) {
				had = append(had, v.handle)
			}
		}
		if named == "" && refs > 1 {
			continue // a person has to say which of them the claim has, and its pod is told so
		}
		if len(had) == 1 && a.pods[claim].handle != had[0] {
			w.breach("authors: claim %s had %s and never gets it again: its pod has %+v", claim, had[0], a.pods[claim])
		}
	}
}

// authoring returns steps of two authors, and of the operator who lists volumes for them.
func authoring(r *rand.Rand) []string {
	claim, disk := claimants[r.IntN(len(claimants))], fmt.Sprintf("p%d", r.IntN(2))
	named := []string{"", " " + disk, " " + disk}[r.IntN(3)]
	switch roll := r.IntN(20); {
	case roll < 3:
		handle := []string{"", "", "", disk + "-other"}[r.IntN(4)]
		ref := []string{"", "", "", "", "bank/data", claim}[r.IntN(6)]
		return []string{fmt.Sprintf("pv %s %s,%s,%s", disk, []string{"x", "xx"}[r.IntN(2)], handle, ref)}
	case roll < 9:
		return []string{"ask " + claim + named, "use " + claim}
	case roll < 11:
		return []string{"unuse " + claim}
	case roll < 15:
		return []string{"unuse " + claim, "wait 100ms", "unask " + claim}
	case roll < 16:
		return []string{"unuse " + claim, "withdraw " + claim}
	case roll < 17:
		return []string{"unpv " + disk}
	case roll < 18:
		return []string{"give " + disk}
	case roll < 19:
		return []string{fmt.Sprintf("trap record %d %v", 1+r.IntN(3), r.IntN(2) == 0)}
	default:
		return []string{"wait " + time.Duration(1+r.IntN(100)*int(time.Millisecond)).String()}
	}
}
