package server

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
)

// BlocksQuery asks which blocks of a snapshot hold data.
type BlocksQuery struct {
	Namespace, Name string
	// Base is an older snapshot in the namespace: then the answer holds the blocks that
	// changed since; "" for none.
	Base string
}

// BlockRange is a range of a volume's bytes.
type BlockRange struct {
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
}

// BlocksLine is one line of the answer to a query for blocks: either ranges, in
// ascending order without overlap, or the end. An answer without the end is incomplete.
type BlocksLine struct {
	Ranges []BlockRange `json:"ranges,omitempty"`
	// End is set only in the last line.
	End *BlocksEnd `json:"end,omitempty"`
}

// BlocksEnd says how an answer ended.
type BlocksEnd struct {
	// CapacityBytes is the volume's size; 0 if the driver returned nothing.
	CapacityBytes int64 `json:"capacityBytes"`
	// Failed says why the ranges are incomplete; nil if they are complete.
	Failed *Error `json:"failed,omitempty"`
}

// blocks serves GET /v1/snapshots/{ns}/{name}/blocks. The driver reads storage with a
// secret for it, so only owners of the socket may ask.
func (s *Server) blocks(w http.ResponseWriter, r *http.Request) {
	q, err := s.blocksQuery(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	st, ok := s.open(w, r)
	if !ok {
		return
	}
	defer st.free()
	st.patience = MaxWait // the client copies the blocks of each line before it reads on
	ctx, stop := st.untilStop(r.Context())
	defer stop()
	begun := false
	var end BlocksEnd
	end.CapacityBytes, err = s.cfg.Storage.Blocks(ctx, q, func(ranges []BlockRange) error {
		begun = true
		return st.send(BlocksLine{Ranges: ranges})
	})
	switch {
	case err != nil && !begun:
		s.fail(w, err)
		return
	case err != nil:
		end.Failed = failure(err)
	}
	if err := st.send(BlocksLine{End: &end}); err != nil {
		s.cfg.Logger.Debug("answer with blocks ended", "path", r.URL.Path, "err", err)
	}
}

func (s *Server) blocksQuery(r *http.Request) (BlocksQuery, error) {
	q := BlocksQuery{Base: r.URL.Query().Get("base")}
	if r.URL.Query().Has("base") && q.Base == "" { // it would mean all data, not a difference
		return q, fmt.Errorf("%w: base: found \"\", want the name of an older snapshot, or no base", ErrInvalid)
	}
	p := peerOf(r)
	if !p.owner() {
		return q, fmt.Errorf("%w: only root may read the blocks of snapshots, not user %d", ErrForbidden, p.uid)
	}
	if s.cfg.Storage == nil {
		return q, fmt.Errorf("%w: in a cluster csi-volmgr reads no snapshots, not even those of the node's own claims; for "+
			"the cluster's snapshots, ask external-snapshot-metadata", ErrConflict)
	}
	var err error
	if q.Namespace, q.Name, err = podName(r); err != nil {
		return q, err
	}
	if m := validation.NameIsDNSSubdomain(q.Base, false); q.Base != "" && len(m) > 0 {
		return q, fmt.Errorf("%w: base %q: %s", ErrInvalid, q.Base, strings.Join(m, "; "))
	}
	return q, nil
}
