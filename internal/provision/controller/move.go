package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Errors of [Controller.Move].
var (
	// ErrTaken means that the new name is another claim's.
	ErrTaken = errors.New("the name is another claim's")
	// ErrBusy means that a call for the volume is in flight.
	ErrBusy = errors.New("a call for its volume is in flight")
)

// Move gives the volume of a claim that no source lists to a claim of another name, in one commit: at every
// moment one claim has the data. The volume keeps its PersistentVolume's name. parked is the caller's note about
// a volume that is moved out of the way, or nil. The error wraps ErrNotFound if the claim has no volume,
// ErrListed, ErrTaken, ErrBusy, ErrInUse or ErrUnreadable.
func (c *Controller) Move(ctx context.Context, from, to Key, parked json.RawMessage) error {
	if err := c.do(ctx, func(run context.Context) error { return c.move(run, from, to, parked) }); err != nil {
		return fmt.Errorf("move the volume of claim %s to claim %s: %w", from, to, err)
	}
	return nil
}

// move is Move in Run's goroutine.
func (c *Controller) move(ctx context.Context, from, to Key, parked json.RawMessage) error {
	e := c.claims.entries[from]
	if err := c.checkMove(e, to); err != nil {
		return err
	}
	rec := e.rec.movedTo(to, parked)
	if err := claimBucket().commit(ctx, c.cfg, map[Key]record{from: {}, to: rec}); err != nil {
		return err
	}
	if e.unsaved {
		c.touchSnapshotsOf(e.id())
		c.touchSource(e.rec.Spec.Source)
	}
	n := c.claims.entry(to)
	c.setRecord(e, record{}) // plans the claims that wait for the volume's name
	c.setRecord(n, rec)
	e.unsaved, n.unsaved = false, false
	c.log.Info("volume moved to another claim", "claim", from.String(), "to", to.String(), "volume", rec.Name)
	c.claims.touch(from)
	c.claims.touch(to)
	return nil
}

// checkMove returns why the volume of e cannot be moved to the claim to; nil if it can.
func (c *Controller) checkMove(e *entry, to Key) error {
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "":
		return ErrNotFound
	case e.unreadable != "":
		return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case !e.rec.usable():
		return fmt.Errorf("%w with a volume to move: %s", ErrNotFound, e.rec.Name)
	case e.want.Listed:
		return ErrListed
	case e.doing.verb != noVerb || e.attaching != nil:
		return ErrBusy
	}
	if by := c.inUse(e); by != "" {
		return fmt.Errorf("%w: %s has volume %s", ErrInUse, by, e.rec.Name)
	}
	// Claims and snapshots find their source by the claim's name until they are made.
	if by := c.cloning(e); by != "" {
		return fmt.Errorf("%w: volume %s is being cloned for claim %s", ErrInUse, e.rec.Name, by)
	}
	if by := c.needed(e); by != "" {
		return fmt.Errorf("%w: %s is to be made of volume %s", ErrInUse, by, e.rec.Name)
	}
	if o := c.claims.entries[to]; o != nil && (!o.rec.empty() || o.unreadable != "" || o.want.Listed) {
		return ErrTaken
	}
	return nil
}

// movedTo returns r as the record of another claim.
func (r record) movedTo(to Key, parked json.RawMessage) record {
	if r.MadeFor == (Key{}) {
		r.MadeFor = r.Claim
	}
	if r.MadeFor == to {
		r.MadeFor = Key{}
	}
	r.Claim, r.Parked = to, parked
	return r
}

// setNumber sets which volume made for its claim's UID e's next one is. A volume that was moved to another claim
// keeps its name, by which the driver would find it, so the next volume of the UID needs a name of its own.
// namesake is another claim that has that name, or "".
func (c *Controller) setNumber(e *entry, claim *Claim) (namesake string) {
	switch {
	case !e.want.Listed:
		return ""
	case e.rec.Volume.Phase != state.Absent: // the record has the name
		claim.number, _ = strconv.Atoi(strings.TrimPrefix(e.rec.Name, claim.volumeName()+"-"))
		return ""
	}
	for claim.number = 1; ; claim.number++ {
		owner, taken := c.claims.names[claim.volumeName()]
		switch o := c.claims.entries[owner]; {
		case !taken || owner == e.key:
			return ""
		case o == nil || o.rec.MadeFor == (Key{}):
			return owner.String()
		}
	}
}

// parked returns the note about a parked volume; nil if there is none or a source lists the claim.
func (e *entry) parked() json.RawMessage {
	if e.want.Listed || !e.rec.usable() {
		return nil
	}
	return e.rec.Parked
}

// Kept returns the status of a claim that no source lists and that has a volume; kept is false for any other.
func (c *Controller) Kept(ctx context.Context, key Key) (s ClaimStatus, kept bool, err error) {
	err = c.read(ctx, func() {
		if e := c.claims.entries[key]; e != nil && !e.want.Listed && e.rec.usable() && e.unreadable == "" {
			s, kept = e.status(), true
		}
	})
	return s, kept, err
}

// AllParked returns the status of every claim that has a volume which Move parked and that no source lists,
// sorted by namespace and name.
func (c *Controller) AllParked(ctx context.Context) (all []ClaimStatus, err error) {
	err = c.read(ctx, func() {
		for _, key := range slices.SortedFunc(maps.Keys(c.claims.entries), Key.compare) {
			if e := c.claims.entries[key]; e.parked() != nil {
				all = append(all, e.status())
			}
		}
	})
	return all, err
}
