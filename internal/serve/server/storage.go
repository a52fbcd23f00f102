package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Storage asks drivers about their storage, and decides whose listed volumes are.
type Storage interface {
	// Unowned asks every driver that can list its storage for what this node does not
	// know of.
	Unowned(ctx context.Context) (Unowned, error)
	// Blocks asks the driver of a snapshot for the snapshot's blocks and passes them to
	// each as they arrive. It returns the volume's size (bytes).
	Blocks(ctx context.Context, q BlocksQuery, each func([]BlockRange) error) (capacity int64, err error)
	// ReleaseVolume gives a PersistentVolume free, with its data, that a claim had which is gone, and
	// returns a note that names that claim.
	ReleaseVolume(ctx context.Context, by audit.By, r Release) (note string, err error)
	// SetReclaim sets the reclaim policy of the volume that csi-volmgr made for a claim, and returns the volume.
	SetReclaim(ctx context.Context, by audit.By, r Reclaim) (volume string, err error)
}

// Reclaim says what becomes of the volume of a claim when the claim is deleted.
type Reclaim struct {
	Namespace, Claim string
	// Policy is Retain or Delete.
	Policy string
}

// setReclaim serves PUT /v1/claims/{ns}/{name}/reclaim-policy.
func (s *Server) setReclaim(w http.ResponseWriter, r *http.Request) {
	set := Reclaim{Namespace: r.PathValue("ns"), Claim: r.PathValue("name"), Policy: r.URL.Query().Get("policy")}
	if s.cfg.Storage == nil {
		s.fail(w, fmt.Errorf("%w: in a cluster, its API server has the policy: kubectl patch persistentvolume NAME -p "+
			`'{"spec":{"persistentVolumeReclaimPolicy":"%s"}}'`, ErrConflict, set.Policy))
		return
	}
	volume, err := s.cfg.Storage.SetReclaim(r.Context(), requester(r), set)
	s.reply(w, Applied{
		Kind: "persistentvolumeclaim", Namespace: set.Namespace, Name: set.Claim, Result: "configured",
		Note: "volume " + volume + " has reclaimPolicy " + set.Policy,
	}, err)
}

// Release says which PersistentVolume to give free, and why.
type Release struct {
	Volume string
	// Reason is the operator's reason, for the audit log; may be "".
	Reason string
}

// releaseVolume serves POST /v1/persistentvolumes/{name}/release.
func (s *Server) releaseVolume(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Storage == nil {
		s.fail(w, fmt.Errorf("%w: in a cluster, its API server says whose a volume is (spec.claimRef)", ErrConflict))
		return
	}
	rel := Release{Volume: r.PathValue("name"), Reason: strings.TrimSpace(r.URL.Query().Get("reason"))}
	note, err := s.cfg.Storage.ReleaseVolume(r.Context(), requester(r), rel)
	s.reply(w, Applied{Kind: "persistentvolume", Name: rel.Volume, Result: "released", Note: note}, err)
}

// Unowned lists what is in drivers' storage and is named by no record and no object of
// this node. It may belong to another node or cluster: a driver does not say whose it
// is.
type Unowned struct {
	Items []Stored `json:"items"`
	// Unlisted are the drivers that did not list all of their storage.
	Unlisted []Unlisted `json:"unlisted,omitempty"`
}

// Stored is a volume or a snapshot in a driver's storage.
type Stored struct {
	// Kind is volume or snapshot.
	Kind   string           `json:"kind"`
	Driver state.DriverName `json:"driver"`
	// Handle is its CSI volume_id or snapshot_id.
	Handle string `json:"handle"`
	// Of is the handle of a snapshot's source volume.
	Of string `json:"of,omitempty"`
	// SizeBytes is 0 and Created is zero if the driver does not report them.
	SizeBytes int64     `json:"sizeBytes,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	// MayBe names a claim or snapshot whose creation is not finished and that may own
	// it.
	MayBe string `json:"mayBe,omitempty"`
}

// Unlisted says why a driver's list is incomplete.
type Unlisted struct {
	Driver state.DriverName `json:"driver"`
	Why    string           `json:"why"`
}

// storage serves GET /v1/storage.
func (s *Server) storage(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Storage == nil {
		s.fail(w, fmt.Errorf("%w: in a cluster, sidecars create the volumes, so this node "+
			"does not know which ones the cluster has",
			ErrConflict))
		return
	}
	found, err := s.cfg.Storage.Unowned(r.Context())
	found.Items = nonNil(found.Items)
	s.reply(w, found, err)
}
