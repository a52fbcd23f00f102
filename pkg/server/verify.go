package server

import (
	"context"
	"errors"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// goalVerified is mounted, as the kernel and the storage say now.
const goalVerified = "verified"

const (
	// verifyPause is between two verifications of one wait: what is wrong with a
	// mount that is there is mended by people.
	verifyPause = time.Second
	// verifyTime bounds one: a look and a question to the storage have 5 s each,
	// and other calls of the volume come first.
	verifyTime = 30 * time.Second
)

// verifier returns a function that says why a pod cannot rely on its volumes
// now, "" where it can. It returns early when the client goes or the server stops.
func (s *Server) verifier(ctx context.Context, st *stream) func(uid state.PodUID) string {
	return func(uid state.PodUID) string {
		ctx, cancel := context.WithTimeoutCause(ctx, verifyTime, errors.New("no answer from the kernel or the storage"))
		defer cancel()
		ended := make(chan struct{})
		defer close(ended)
		go func() {
			select {
			case <-st.stop:
				cancel()
			case <-ended:
			}
		}()
		if err := s.cfg.Verify(ctx, uid); err != nil {
			return err.Error()
		}
		return ""
	}
}
