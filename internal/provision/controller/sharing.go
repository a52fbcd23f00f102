package controller

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sharer is a record of a driver's snapshot, as others that name the same snapshot see it. There are
// several if a person named one by its handle.
type sharer struct {
	key Key
	// group means that key is a group snapshot's. Whole means that the other record is of the same
	// group_snapshot_id; otherwise they share single snapshots.
	group, whole bool
	// deleting means that the record is being deleted, leaving that a call for it may have reached
	// the driver.
	deleting, leaving bool
	// wanted means that a person named the snapshot by its handle, and no record has it yet.
	wanted bool
}

// fate is what a deletion does with the driver's snapshot. A higher one prevails.
type fate uint8

const (
	goes  fate = iota // it is deleted at the driver
	waits             // the deletion waits for the other record
	stays             // the record goes, and the driver's snapshot stays with the other record
)

// fateOf decides what the deletion of s does, and which other record is the reason. The driver's
// snapshot goes with its last record. Of several that are deleted at once that is one whose call may
// have been made, then the last by key; a group's snapshots go only with the group, since a driver
// may delete them only together.
func (s sharer) fateOf(others []sharer) (f fate, because sharer) {
	for _, o := range others {
		if one := s.against(o); one > f || one == f && f != goes && o.before(because) {
			f, because = one, o
		}
	}
	return f, because
}

// before reports whether s is the better answer to what a deletion waits for: a person can end one
// that is not being deleted.
func (s sharer) before(o sharer) bool {
	if s.deleting != o.deleting {
		return o.deleting
	}
	return s.key.compare(o.key) < 0
}

func (s sharer) against(o sharer) fate {
	outlives := !o.deleting || o.leaving && !s.leaving || o.leaving == s.leaving && o.key.compare(s.key) > 0
	switch {
	case o.wanted && s.leaving: // too late for the other
		return goes
	case o.wanted:
		return waits
	case !s.group && (o.group || outlives), s.group && o.group && o.whole && outlives:
		return stays
	case s.group && (!o.group || !o.whole && outlives):
		return waits
	}
	return goes
}

// String returns the kind and the key.
func (s sharer) String() string {
	if s.group {
		return "group snapshot " + s.key.String()
	}
	return "snapshot " + s.key.String()
}

// heldBy says why a deletion waits for s.
func (s sharer) heldBy() held {
	if s.wanted {
		return heldf("%s names it by its handle and does not have it yet: it is deleted once that has it or is deleted", s)
	}
	verb := "snapshot"
	if s.group {
		verb = "groupsnapshot"
	}
	return heldf("%s has one of its snapshots by the handle: to go on, csi-volmgr delete %s %s -n %s", s, verb, s.key.Name,
		s.key.Namespace)
}

// leavingOf returns the first of all for which a deletion may have reached the driver.
func leavingOf(all []sharer) (s sharer, is bool) {
	if i := slices.IndexFunc(all, func(s sharer) bool { return s.leaving }); i >= 0 {
		return all[i], true
	}
	return sharer{}, false
}

// handleOf is a driver's snapshot.
type handleOf struct {
	driver state.DriverName
	handle string
}

// wantedHandle returns the driver's snapshot that a person named, or the zero value.
func (s Snapshot) wantedHandle() handleOf { return handleOf{s.Class.Driver, s.Handle} }

// handleOf returns the driver's snapshot of the record, or the zero value's.
func (r snapshotRecord) handleOf() handleOf { return handleOf{r.Spec.Driver, r.Handle} }

// sharersOf returns all records of a driver's snapshot but those that own holds, and the snapshots that
// want it by its handle.
func (c *Controller) sharersOf(h handleOf, own func(*snapshotEntry) bool) []sharer {
	if h.handle == "" {
		return nil
	}
	var all []sharer
	for _, e := range c.snapshots.entries {
		if own(e) {
			continue
		}
		content := e.rec.Content.Phase
		has := e.rec.handleOf() == h && (content == state.Present || content == state.Leaving)
		wants := e.group == nil && content == state.Absent && !e.rec.Delete &&
			(e.listed && e.want.Refused == "" && e.want.wantedHandle() == h || e.doing.verb.calls() && e.rec.handleOf() == h)
		if !has && !wants {
			continue
		}
		s := e.rec.sharer()
		s.key, s.wanted = e.key, !has
		if e.group != nil {
			s.key, s.group = e.group.key, true
		}
		all = append(all, s)
	}
	return all
}

// sharersOfGroup returns all other records of a group's snapshots.
func (c *Controller) sharersOfGroup(e *groupEntry) (all []sharer) {
	for _, m := range e.rec.Members {
		own := func(s *snapshotEntry) bool { return s.group == e }
		for _, s := range c.sharersOf(handleOf{e.rec.Spec.Driver, m.Handle}, own) {
			if o := c.groups.entries[s.key]; s.group && o != nil {
				s.whole = e.rec.Handle != "" && o.rec.Handle == e.rec.Handle
			}
			all = append(all, s)
		}
	}
	return all
}

// touchSharers plans the records of a driver's snapshot, those that want it, and what is left of the object
// that it was made for.
func (c *Controller) touchSharers(h handleOf) {
	if h.handle == "" {
		return
	}
	for key, e := range c.snapshots.entries {
		switch {
		case e.rec.handleOf() != h && e.want.wantedHandle() != h && e.rec.formerOf() != h:
		case e.group != nil:
			c.groups.touch(e.group.key)
		default:
			c.snapshots.touch(key)
		}
	}
}
