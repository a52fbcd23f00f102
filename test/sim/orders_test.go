package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
)

// order requests a deletion, and counts whether the storage may delete. heirs are the claims that
// it must not leave without their source. mu is held.
func (w *world) order(name string, data bool, heirs []heir, deletion func(context.Context) error) {
	l, allows := w.life, 1
	if retained[name] && !data {
		allows = 0
	}
	w.orders[name] += allows
	w.asked[name] = true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		err := deletion(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil {
			l.disinherited = append(l.disinherited, heirs...)
		}
		for _, refusal := range []error{controller.ErrNotFound, controller.ErrInUse, controller.ErrListed, controller.ErrRetained, controller.ErrGrouped} {
			if errors.Is(err, refusal) {
				w.orders[name] -= allows
			}
		}
	}()
}

// heir is a claim that is listed and to be made from what an order deletes.
type heir struct {
	claim, of string
	unlisted  int // how often it had ceased to be listed before the order
}

// heirs returns the claims that are to be made from a snapshot, or from a snapshot that a group
// has; mu is held.
func (w *world) heirs(name string) (all []heir) {
	if l := w.life; !l.claimed || deleting(l, name) {
		return nil
	}
	group, _ := w.life.c.Group(keyOf(name))
	for _, claim := range sortedKeys(w.claims) {
		from := origins[claim]
		if w.claims[claim] && (from == name || slices.Contains(group.Snapshots, from)) {
			all = append(all, heir{claim, name, w.unlisted[claim]})
		}
	}
	return all
}

// deleting reports whether an order to delete the snapshot or the group was accepted before.
func deleting(l *life, name string) bool {
	snap, _ := l.c.Snapshot(keyOf(name))
	group, _ := l.c.Group(keyOf(name))
	return snap.Phase == controller.Deleting || group.Phase == controller.Deleting
}

// heirs checks that no order was accepted which takes the source of a listed claim that has no
// volume yet; mu is held.
func (j *judge) heirs(l *life) {
	for _, h := range l.disinherited {
		s, _ := l.c.Claim(keyOf(h.claim))
		if s.Volume == nil && s.Phase != controller.Deleting && j.w.unlisted[h.claim] == h.unlisted && !j.w.disk.damaged {
			j.w.breach("claims: an order to delete %s was accepted, and claim %s is to be made from it: %+v", h.of, h.claim, s)
		}
	}
	l.disinherited = nil
}
