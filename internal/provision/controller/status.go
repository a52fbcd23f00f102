package controller

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// view is the published, read-only status of all claims, snapshots and group snapshots.
type view struct {
	mu          *sync.Mutex // guards the rest
	claims      map[Key]ClaimStatus
	snapshots   map[Key]SnapshotStatus
	groups      map[Key]GroupStatus
	healthConns map[state.DriverName]grpc.ClientConnInterface // drivers whose Controller service reports volume health
	changed     chan struct{}
	loaded      chan struct{}
}

func newView() view {
	return view{
		mu: &sync.Mutex{}, claims: map[Key]ClaimStatus{}, snapshots: map[Key]SnapshotStatus{},
		groups:      map[Key]GroupStatus{},
		healthConns: map[state.DriverName]grpc.ClientConnInterface{},
		changed:     make(chan struct{}), loaded: make(chan struct{}),
	}
}

// Claims returns every claim that is listed or has a record, sorted by namespace and name.
func (c *Controller) Claims() []ClaimStatus {
	return list(&c.view, c.view.claims)
}

// Claim returns the status of one claim, and whether it exists.
func (c *Controller) Claim(key Key) (ClaimStatus, bool) {
	return lookUp(&c.view, c.view.claims, key)
}

// Volumes returns the volumes that pods may use, by claim: those that exist and are not being
// deleted.
func (c *Controller) Volumes() []Volume { return VolumesOf(c.Claims()) }

// VolumesOf is [Controller.Volumes] of these claims.
func VolumesOf(claims []ClaimStatus) []Volume {
	var list []Volume
	for _, s := range claims {
		if s.Volume != nil && s.Phase != Deleting {
			list = append(list, *s.Volume)
		}
	}
	return list
}

// Changed returns a channel that is closed at the next change of what Claims, Volumes, Snapshots
// and Groups return. Call it before reading them.
func (c *Controller) Changed() <-chan struct{} {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	return c.view.changed
}

// Loaded is closed once Run has read the records. From then on, Volumes includes the volumes made
// before a restart.
func (c *Controller) Loaded() <-chan struct{} { return c.view.loaded }

// signal announces a change. The caller holds mu.
func (v *view) signal(changed bool) {
	if changed {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

// publishClaims updates the public status of the claims and drops those that are gone.
func (c *Controller) publishClaims(keys []Key) {
	publish(&c.view, &c.claims, c.view.claims, keys, func(e *entry) {
		for source, clones := range c.clones { // linear, but deletions are rare
			if delete(clones, e.key); len(clones) == 0 {
				delete(c.clones, source)
			}
		}
	})
}

func (e *entry) status() ClaimStatus {
	s := ClaimStatus{
		Claim: e.key, UID: e.rec.UID, Phase: e.phase(), Class: e.rec.Spec.Class,
		WantBytes: e.want.Claim.SizeBytes, Call: e.doing.verb.String(), Since: e.since,
		Begun: !e.rec.empty() || e.unreadable != "", Retry: e.rec.Volume.Retry(), Parked: e.parked(),
		VolumeName: e.rec.Name, Sole: e.rec.Sole,
	}
	if e.unreadable != "" {
		s.VolumeName, s.Sole = e.wantedName(), true
	}
	if e.want.Listed {
		s.UID, s.Class = e.want.Claim.UID, e.want.Claim.Class.Name
		if e.want.Claim.Source.ofSnapshot() {
			s.Source = e.want.Claim.Source.Snapshot
		}
	}
	if e.rec.Volume.Phase == state.Present {
		v := e.rec.volume(e.want)
		s.Volume = &v
		if e.rec.Modify.Attempts > 0 && (e.rec.Modifying != nil || !e.want.Claim.Attributes.has(e.rec)) {
			s.Retry = e.rec.Modify
		}
		if e.rec.Expand.Attempts > 0 {
			s.Retry = e.rec.Expand
		}
	}
	if s.Call == "" {
		s.Reason, s.Until, s.Refused, s.Cause = e.held.reason, e.held.until, e.held.refused, e.held.cause
		if s.Cause.Code == state.RecordsLost {
			s.Retry = state.Retry{} // it is not what the deletion waits for
		}
		if s.Cause.Code == state.CallFailed && s.Retry.Reason == state.NoObject {
			s.Cause = e.rec.noSecret(s.Retry.Call)
		} else if s.Cause.Code == state.CallFailed {
			s.Cause.Of = string(driverOf(e))
		}
		s.Rejected = e.rejected()
		s.Stalled = !s.Begun && e.held.waits() && e.held.until.IsZero() && !e.held.slot
		if c := s.Cause.Code; s.Stalled && (c == state.DriverAway || c == state.DriverSilent || c == state.ControllerAway) {
			s.Away = e.want.Claim.Class.Provisioner
		}
	}
	return s
}

// rejected reports whether the driver has refused the request that the claim stands for, and not who asks it.
func (e *entry) rejected() bool {
	failed := e.rec.Volume.Retry()
	code := state.CodeOf(failed.Call, failed.Code)
	return e.want.Listed && !e.rec.empty() && e.rec.Volume.Phase == state.Absent && !e.rec.Unanswered &&
		failed.Call == createVolume.String() && code.Outcome == state.Refused && !code.Unauthorized &&
		e.rec.Spec.SizeBytes == e.want.Claim.SizeBytes
}

func (e *entry) phase() Phase {
	switch {
	case e.rec.Delete:
		return Deleting
	case !e.want.Listed:
		return Released
	case e.rec.Volume.Phase == state.Present:
		return Bound
	}
	return Pending
}
