package plan

import (
	"hash/fnv"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A driver with requiresRepublish is called again after republishEvery plus at most
// republishJitter, which spreads the calls of many volumes. The kubelet calls it every
// 60 to 90 s, at its pod sync.
const (
	republishEvery  = time.Minute
	republishJitter = 30 * time.Second
	// clockSlack is how far the clock may be set back without a reaction.
	clockSlack = 10 * time.Second
)

// renewAt returns when m, which was just published, has to be published again: at ends,
// when it expires, or when the driver asks for it, whichever comes first.
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

// renewalDue reports whether m, which is present, has to be published again although its content
// is as wanted. A driver that begins to require republishing is called at once.
func renewalDue(m state.Mount, wm state.WantMount, now time.Time) bool {
	if m.RenewAt.IsZero() {
		return wm.Renewal.Republish
	}
	return !m.RenewAt.After(now) || clockSetBack(m, now)
}

// clockSetBack reports whether the clock was set back since m was published: its content is
// from the future, or its renewal is later than any call would set. Without this it would
// be renewed too late by as much.
func clockSetBack(m state.Mount, now time.Time) bool {
	return m.RevisionAt.After(now.Add(clockSlack)) ||
		m.Renewal.Republish && m.RenewAt.After(now.Add(republishEvery+republishJitter+clockSlack))
}

// withRenewal returns m with the renewal that the driver asks for now. The context follows the
// wish only if the driver asked to be called again; other calls repeat their request.
func withRenewal(m state.Mount, wm state.WantMount) state.Mount {
	m.Renewal = wm.Renewal
	if wm.Renewal.Republish {
		m.Context = wm.Context
	}
	return m
}

// wakeAt plans the volume again at the time at, although it does not wait.
func (c *chooser) wakeAt(at time.Time) {
	if at.After(c.now) && (c.held.Until.IsZero() || at.Before(c.held.Until)) {
		c.held.Until = at
	}
}
