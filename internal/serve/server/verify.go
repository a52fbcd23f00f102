package server

import (
	"context"
	"errors"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// goalVerified is mounted, checked against the kernel and the storage now.
const goalVerified = "verified"

const (
	// verifyPause is the time between two verifications of one wait. It may be long,
	// since people have to repair a mount that fails verification.
	verifyPause = time.Second
	// verifyTime bounds one verification: the check of the kernel and the query of the
	// storage may take 5 s each, and other calls of the volume come first.
	verifyTime = 30 * time.Second
)

// verifier returns a function that says why a pod cannot rely on its volumes now, "" if
// it can. The function returns early if the client goes away or the server stops.
func (s *Server) verifier(ctx context.Context, st *stream) func(uid state.PodUID) string {
	return func(uid state.PodUID) string {
		ctx, end := st.untilStop(ctx)
		defer end()
		ctx, cancel := context.WithTimeoutCause(ctx, verifyTime, errors.New("no answer from the kernel or the storage"))
		defer cancel()
		if err := s.cfg.Verify(ctx, uid); err != nil {
			return err.Error()
		}
		return ""
	}
}
