package controller

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Groups returns every group snapshot that is listed or has a record, sorted by namespace and name.
func (c *Controller) Groups() []GroupStatus {
	return list(&c.view, c.view.groups)
}

// Group returns the status of one group snapshot, and whether it exists.
func (c *Controller) Group(key Key) (GroupStatus, bool) {
	return lookUp(&c.view, c.view.groups, key)
}

func (e *groupEntry) status() GroupStatus {
	r := e.rec
	s := GroupStatus{
		Group: e.key, UID: r.UID, Phase: e.phase(), Class: r.Spec.Class, Driver: r.Spec.Driver, Handle: r.Handle,
		Created: r.Created, Ready: e.usable(), Consistency: r.Consistency, ReclaimPolicy: r.Spec.Reclaim,
		Call: e.doing.call(), Since: e.since, Retry: r.Content.Retry(),
	}
	for _, m := range r.Members {
		if s.Snapshots = append(s.Snapshots, m.Snapshot); m.Claim != (Key{}) {
			s.Claims = append(s.Claims, m.Claim.Name)
		}
	}
	if e.listed && r.Content.Phase == state.Absent {
		s.UID, s.Class, s.Driver = e.want.UID, e.want.Class.Name, e.want.Class.Driver
		s.Claims = nil
		for _, m := range e.want.Members {
			s.Claims = append(s.Claims, m.Claim.Name)
		}
	}
	if r.Content.Phase == state.Present {
		s.Content = r.contentName()
	}
	if s.Call == "" {
		s.Reason, s.Until, s.Refused = e.held.reason, e.held.until, e.held.refused
		if s.Doubted = e.held.cause.Code == state.RecordsLost; s.Doubted {
			s.Retry = state.Retry{}
		}
	}
	return s
}

// usable reports whether volumes may be made from all its snapshots.
func (e *groupEntry) usable() bool {
	return e.rec.ready() && !e.rec.Delete && (!e.listed || e.rec.mismatch(e.want) == "")
}

func (e *groupEntry) phase() Phase {
	switch {
	case e.rec.Delete:
		return Deleting
	case !e.listed:
		return Released
	case e.usable():
		return Ready
	}
	return Pending
}

// factsOfGroup collects what nextGroup needs to know about e.
func (c *Controller) factsOfGroup(e *groupEntry) groupFacts {
	f := groupFacts{Driver: c.snapshotDriver(e.driver()), Namesake: c.groups.namesake(e.key, e)}
	if e.rec.Delete || e.rec.Content.Phase == state.Leaving {
		f.Sharers = c.sharersOfGroup(e)
	}
	f.Doubt = (e.old || e.rec.torn()) && c.lost()
	if e.rec.Delete {
		f.Used = c.usedBy(e.members...)
	}
	for _, id := range e.volumes() {
		if f.Busy == "" {
			f.Busy = c.busy(id)
		}
	}
	if e.rec.Content.Phase == state.Absent {
		for _, m := range e.want.members() {
			key := Key{Namespace: e.key.Namespace, Name: m.Snapshot}
			s := c.snapshots.entries[key]
			if s != nil && !s.gone() && s.group != e || s == nil && c.snapshots.isMaking(key) {
				f.Taken = key.String()
			}
		}
	}
	return f
}

// publishGroups updates the public status of the group snapshots and drops those that are gone.
func (c *Controller) publishGroups(keys []Key) {
	publish(&c.view, &c.groups, c.view.groups, keys, func(*groupEntry) {})
}
