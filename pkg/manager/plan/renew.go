package plan

import (
	"hash/fnv"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// republishEvery is how often a driver is called again that wants it
// (requiresRepublish), and republishJitter how much later at most, so that the
// calls of many volumes spread. The kubelet takes 60 to 90 s, by its pod sync.
const (
	republishEvery  = time.Minute
	republishJitter = 30 * time.Second
	// clockSlack is how far a clock is corrected without notice.
	clockSlack = 10 * time.Second
)

// renewAt returns when m, just published, is to be published again: when what
// the call brought ends, or when the driver wants it, whichever comes first.
func renewAt(id state.VolumeID, m state.Mount, ends, now time.Time) time.Time {
	if !m.Renewal.Republish {
		return ends
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(id) + "\x00" + string(m.Pod.UID))) // a hash's Write never fails
	at := now.Add(republishEvery + republishJitter/1000*time.Duration(h.Sum32()%1000))
	if !ends.IsZero() && ends.Before(at) {
		return ends
	}
	return at
}

// due reports whether m, which is present, has to be published again though its
// content is as wanted. A driver that begins to want it is called at once.
func due(m state.Mount, wm state.WantMount, now time.Time) bool {
	if m.RenewAt.IsZero() {
		return wm.Renewal.Republish
	}
	return !m.RenewAt.After(now) || setBack(m, now)
}

// setBack reports whether the clock was put back since m was published: what is in
// it is of a time to come, or it is to be renewed later than any call sets. It would
// be renewed late by as much.
func setBack(m state.Mount, now time.Time) bool {
	return m.RevisionAt.After(now.Add(clockSlack)) ||
		m.Renewal.Republish && m.RenewAt.After(now.Add(republishEvery+republishJitter+clockSlack))
}

// refresh gives a call what the driver wants anew now. What it is told of the
// pod follows only where it asked to be called again: others are repeated as
// they were.
func refresh(m state.Mount, wm state.WantMount) state.Mount {
	m.Renewal = wm.Renewal
	if wm.Renewal.Republish {
		m.Context = wm.Context
	}
	return m
}

// wake has a volume that waits for nothing looked at again at a moment.
func (c *chooser) wake(at time.Time) {
	if at.After(c.now) && (c.held.Until.IsZero() || at.Before(c.held.Until)) {
		c.held.Until = at
	}
}
