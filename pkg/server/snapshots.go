package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// SnapshotStatus is a VolumeSnapshot as it stands on this node. The fields that
// external-snapshotter has in a VolumeSnapshot's status have its names.
type SnapshotStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is Pending, Ready, Released or Deleting.
	Phase string `json:"phase"`
	// Reason says why it is not ready; "" where it is, or a call is in flight.
	Reason string `json:"reason,omitempty"`
	// Call is the call in flight for it ("CreateSnapshot"); "" where none is.
	Call string `json:"call,omitempty"`
	// Refused: what Reason says ends only with a change of the snapshot, its class or its driver.
	Refused bool `json:"refused,omitempty"`
	// Claim is the claim, in its namespace, whose volume it is of; "" where a person named it.
	Claim  string           `json:"claim,omitempty"`
	Class  string           `json:"class,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// Group is the group snapshot, in its namespace, that it is one of; "" for none.
	Group string `json:"volumeGroupSnapshotName,omitempty"`
	// Content is the name of its VolumeSnapshotContent; "" until there is one.
	Content string `json:"boundVolumeSnapshotContentName,omitempty"`
	// Handle is the driver's snapshot_id.
	Handle  string    `json:"snapshotHandle,omitempty"`
	Created time.Time `json:"creationTime,omitzero"`
	Ready   bool      `json:"readyToUse"`
	// Consistency is frozen, crash or, of a group, apart where a freeze was asked for; "" for others.
	Consistency string `json:"consistency,omitempty"`
	// RestoreBytes is the least size of a claim that is made of it; 0 where it is not known.
	RestoreBytes int64 `json:"restoreSize,omitempty"`
	// DeletionPolicy is Delete or Retain.
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// Since is when Call or Reason began.
	Since time.Time `json:"since,omitzero"`
	// Until is when it is looked at again if no event comes first; zero means that only an event helps.
	Until time.Time `json:"until,omitzero"`
	// Retry paces the calls for it and keeps the last failure.
	Retry RetryStatus `json:"retry,omitzero"`
}

// GroupSnapshotStatus is a VolumeGroupSnapshot as it stands on this node. The fields that
// external-snapshotter has in a VolumeGroupSnapshot's status have its names; the others are as in
// [SnapshotStatus].
type GroupSnapshotStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Phase     string `json:"phase"`
	Reason    string `json:"reason,omitempty"`
	Call      string `json:"call,omitempty"`
	Refused   bool   `json:"refused,omitempty"`
	// Claims are the claims, in its namespace, that it is of; Snapshots, in the same order, the
	// VolumeSnapshots of them.
	Claims    []string         `json:"claims"`
	Snapshots []string         `json:"snapshots"`
	Class     string           `json:"class,omitempty"`
	Driver    state.DriverName `json:"driver,omitempty"`
	// Content is the name of its VolumeGroupSnapshotContent; "" until there is one.
	Content string `json:"boundVolumeGroupSnapshotContentName,omitempty"`
	// Handle is the driver's group_snapshot_id; "" of a driver that makes no groups.
	Handle         string      `json:"volumeGroupSnapshotHandle,omitempty"`
	Created        time.Time   `json:"creationTime,omitzero"`
	Ready          bool        `json:"readyToUse"`
	Consistency    string      `json:"consistency,omitempty"`
	DeletionPolicy string      `json:"deletionPolicy,omitempty"`
	Since          time.Time   `json:"since,omitzero"`
	Until          time.Time   `json:"until,omitzero"`
	Retry          RetryStatus `json:"retry,omitzero"`
}

// SnapshotDeletion says which snapshot is to be deleted, and why.
type SnapshotDeletion struct {
	Namespace, Name string
	// Group: it is the name of a group snapshot, all of whose snapshots go.
	Group bool
	// Reason is the operator's own words, for the audit log; "" for none.
	Reason string
	// Data: the snapshot goes too where its deletionPolicy is Retain.
	Data bool
}

// key is the group snapshot's "namespace/name".
func (g GroupSnapshotStatus) key() string { return g.Namespace + "/" + g.Name }

// serveSnapshots adds the paths of snapshots.
func (s *Server) serveSnapshots(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/snapshots", listed(s, s.cfg.Claims.Changed, every(s.cfg.Claims.Snapshots), SnapshotStatus.key))
	mux.HandleFunc("GET /v1/snapshots/{ns}/{name}/blocks", s.blocks)
	if s.cfg.Operator != nil {
		mux.HandleFunc("POST /v1/snapshots/{ns}/{name}/retry", s.retriesSnapshot("snapshot", func(key string) bool {
			is := func(one SnapshotStatus) bool { return one.key() == key }
			return slices.ContainsFunc(s.cfg.Claims.Snapshots(), is)
		}))
		mux.HandleFunc("POST /v1/groupsnapshots/{ns}/{name}/retry", s.retriesSnapshot("groupsnapshot", func(key string) bool {
			is := func(one GroupSnapshotStatus) bool { return one.key() == key }
			return slices.ContainsFunc(s.cfg.Claims.GroupSnapshots(), is)
		}))
	}
	mux.HandleFunc("DELETE /v1/snapshots/{ns}/{name}", s.deleteObject("snapshot", s.deletesSnapshot(false)))
	mux.HandleFunc("GET /v1/groupsnapshots",
		listed(s, s.cfg.Claims.Changed, every(s.cfg.Claims.GroupSnapshots), GroupSnapshotStatus.key))
	mux.HandleFunc("DELETE /v1/groupsnapshots/{ns}/{name}", s.deleteObject("groupsnapshot", s.deletesSnapshot(true)))
}

func (s *Server) deletesSnapshot(group bool) func(r *http.Request, ns, name string) (note string, err error) {
	return func(r *http.Request, ns, name string) (string, error) {
		q := r.URL.Query()
		return s.cfg.Objects.DeleteSnapshot(r.Context(), requester(r), SnapshotDeletion{
			Namespace: ns, Name: name, Group: group,
			Reason: strings.TrimSpace(q.Get("reason")), Data: q.Get("data") == "true",
		})
	}
}

// retriesSnapshot ends the wait of a snapshot or a group snapshot that is known.
func (s *Server) retriesSnapshot(kind string, known func(key string) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ns, name, err := podName(r)
		if err != nil {
			s.fail(w, err)
			return
		}
		again := Retry{Snapshot: ns + "/" + name, Group: kind == "groupsnapshot", Step: state.UnmountNormal}
		if known(again.Snapshot) {
			err = s.cfg.Operator.Retry(r.Context(), requester(r), again)
		} else {
			err = fmt.Errorf("%w: %s %s is not known here", ErrNotFound, kind, again.Snapshot)
		}
		answerOr(s, w, Applied{Kind: kind, Namespace: ns, Name: name, Result: "retried"}, err)
	}
}
