package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Storage asks drivers what is in their storage. It changes nothing.
type Storage interface {
	// Unowned asks every driver that can tell what it has that this node does not know of.
	Unowned(ctx context.Context) (Unowned, error)
	// Blocks asks the driver of a snapshot for its blocks, and calls each with them as they come.
	// It returns the size of the volume (bytes).
	Blocks(ctx context.Context, q BlocksQuery, each func([]BlockRange) error) (capacity int64, err error)
}

// Unowned is what drivers have in their storage and no record and no object of this node
// names. It may be another node's, or another cluster's: a driver does not say whose it is.
type Unowned struct {
	Items []Stored `json:"items"`
	// Unlisted are the drivers that did not say all that they have.
	Unlisted []Unlisted `json:"unlisted,omitempty"`
}

// Stored is a volume or a snapshot in a driver's storage.
type Stored struct {
	// Kind is volume or snapshot.
	Kind   string           `json:"kind"`
	Driver state.DriverName `json:"driver"`
	// Handle is its CSI volume_id or snapshot_id.
	Handle string `json:"handle"`
	// Of is the handle of the volume that a snapshot was made of.
	Of string `json:"of,omitempty"`
	// SizeBytes is 0, and Created zero, where the driver does not say.
	SizeBytes int64     `json:"sizeBytes,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	// MayBe names a claim or snapshot that is being made and may turn out to have it.
	MayBe string `json:"mayBe,omitempty"`
}

// Unlisted says why not all that a driver has is known.
type Unlisted struct {
	Driver state.DriverName `json:"driver"`
	Why    string           `json:"why"`
}

// storage serves GET /v1/storage.
func (s *Server) storage(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Storage == nil {
		s.fail(w, fmt.Errorf("%w: in a cluster its sidecars make the volumes, and this node does not know which it has",
			ErrConflict))
		return
	}
	found, err := s.cfg.Storage.Unowned(r.Context())
	if err != nil {
		s.fail(w, err)
		return
	}
	found.Items = nonNil(found.Items)
	s.answer(w, found)
}
