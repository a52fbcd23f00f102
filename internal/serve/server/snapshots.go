package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// SnapshotStatus is the state of a VolumeSnapshot on this node. Fields that
// external-snapshotter has in a VolumeSnapshot's status have the same names here.
type SnapshotStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is Pending, Ready, Released or Deleting.
	Phase string `json:"phase"`
	// Reason says why the snapshot is not ready; "" if it is, or if a call is in
	// flight.
	Reason string `json:"reason,omitempty"`
	// Call is the call in flight for the snapshot ("CreateSnapshot"); "" if none.
	Call string `json:"call,omitempty"`
	// Refused: only a change of the snapshot, its class or its driver can end what
	// Reason says.
	Refused bool `json:"refused,omitempty"`
	// Doubted: the snapshot is not deleted, because the journal that says so may have lost newer records.
	Doubted bool `json:"doubted,omitempty"`
	// Claim is the claim, in the snapshot's namespace, whose volume was snapshotted; ""
	// if a person named the snapshot's handle.
	Claim  string           `json:"claim,omitempty"`
	Class  string           `json:"class,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// Group is the group snapshot, in the same namespace, that this snapshot belongs
	// to; "" if none.
	Group string `json:"volumeGroupSnapshotName,omitempty"`
	// Content is the name of the snapshot's VolumeSnapshotContent; "" until it exists.
	Content string `json:"boundVolumeSnapshotContentName,omitempty"`
	// Handle is the driver's snapshot_id.
	Handle  string    `json:"snapshotHandle,omitempty"`
	Created time.Time `json:"creationTime,omitzero"`
	Ready   bool      `json:"readyToUse"`
	// Consistency is frozen, crash or, for a group, apart, if a freeze was requested;
	// "" otherwise.
	Consistency string `json:"consistency,omitempty"`
	// RestoreBytes is the minimum size of a claim restored from the snapshot; 0 if
	// unknown.
	RestoreBytes int64 `json:"restoreSize,omitempty"`
	// DeletionPolicy is Delete or Retain.
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// Since is when Call or Reason began.
	Since time.Time `json:"since,omitzero"`
	// Until is when the controller checks again if no event comes first; zero means
	// that only an event ends the wait.
	Until time.Time `json:"until,omitzero"`
	// Retry paces the calls for the snapshot and keeps the last failure.
	Retry RetryStatus `json:"retry,omitzero"`
}

// GroupSnapshotStatus is the state of a VolumeGroupSnapshot on this node. Fields that
// external-snapshotter has in a VolumeGroupSnapshot's status have the same names here;
// the others are as in [SnapshotStatus].
type GroupSnapshotStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Phase     string `json:"phase"`
	Reason    string `json:"reason,omitempty"`
	Call      string `json:"call,omitempty"`
	Refused   bool   `json:"refused,omitempty"`
	Doubted   bool   `json:"doubted,omitempty"`
	// Claims are the claims, in the group's namespace, that it snapshots. Snapshots are
	// their VolumeSnapshots, in the same order.
	Claims    []string         `json:"claims"`
	Snapshots []string         `json:"snapshots"`
	Class     string           `json:"class,omitempty"`
	Driver    state.DriverName `json:"driver,omitempty"`
	// Content is the name of the group's VolumeGroupSnapshotContent; "" until it
	// exists.
	Content string `json:"boundVolumeGroupSnapshotContentName,omitempty"`
	// Handle is the driver's group_snapshot_id; "" if the driver makes no groups.
	Handle         string      `json:"volumeGroupSnapshotHandle,omitempty"`
	Created        time.Time   `json:"creationTime,omitzero"`
	Ready          bool        `json:"readyToUse"`
	Consistency    string      `json:"consistency,omitempty"`
	DeletionPolicy string      `json:"deletionPolicy,omitempty"`
	Since          time.Time   `json:"since,omitzero"`
	Until          time.Time   `json:"until,omitzero"`
	Retry          RetryStatus `json:"retry,omitzero"`
}

// SnapshotDeletion says which snapshot to delete, and why.
type SnapshotDeletion struct {
	Namespace, Name string
	// Group: Name is a group snapshot's name; all its snapshots are deleted.
	Group bool
	// Reason is the operator's reason, for the audit log; may be "".
	Reason string
	// Data deletes the snapshot even if its deletionPolicy is Retain.
	Data bool
}

// key returns the group snapshot's "namespace/name".
func (g GroupSnapshotStatus) key() string { return g.Namespace + "/" + g.Name }

// snapshotRoutes adds the paths of snapshots.
func (s *Server) snapshotRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/snapshots",
		serveList(s, s.cfg.Claims.Changed, forAllPeers(s.cfg.Claims.Snapshots), SnapshotStatus.key))
	mux.HandleFunc("GET /v1/snapshots/{ns}/{name}/blocks", s.blocks)
	if s.cfg.Operator != nil {
		mux.HandleFunc("POST /v1/snapshots/{ns}/{name}/retry", s.retrySnapshot("snapshot", func(key string) bool {
			is := func(one SnapshotStatus) bool { return one.key() == key }
			return slices.ContainsFunc(s.cfg.Claims.Snapshots(), is)
		}))
		mux.HandleFunc("POST /v1/groupsnapshots/{ns}/{name}/retry", s.retrySnapshot("groupsnapshot", func(key string) bool {
			is := func(one GroupSnapshotStatus) bool { return one.key() == key }
			return slices.ContainsFunc(s.cfg.Claims.GroupSnapshots(), is)
		}))
	}
	mux.HandleFunc("DELETE /v1/snapshots/{ns}/{name}", s.deleteObject("snapshot", s.deleteSnapshot(false)))
	mux.HandleFunc("GET /v1/groupsnapshots",
		serveList(s, s.cfg.Claims.Changed, forAllPeers(s.cfg.Claims.GroupSnapshots), GroupSnapshotStatus.key))
	mux.HandleFunc("DELETE /v1/groupsnapshots/{ns}/{name}", s.deleteObject("groupsnapshot", s.deleteSnapshot(true)))
}

func (s *Server) deleteSnapshot(group bool) func(r *http.Request, ns, name string) (note string, err error) {
	return func(r *http.Request, ns, name string) (string, error) {
		q := r.URL.Query()
		return s.cfg.Objects.DeleteSnapshot(r.Context(), requester(r), SnapshotDeletion{
			Namespace: ns, Name: name, Group: group,
			Reason: strings.TrimSpace(q.Get("reason")), Data: q.Get("data") == "true",
		})
	}
}

// retrySnapshot returns a handler that ends the wait of a snapshot or group snapshot if
// it is known.
func (s *Server) retrySnapshot(kind string, known func(key string) bool) http.HandlerFunc {
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
		s.reply(w, Applied{Kind: kind, Namespace: ns, Name: name, Result: "retried"}, err)
	}
}
