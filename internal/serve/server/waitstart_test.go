package server

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// answer is a recorder that a test reads while it is written to.
type answer struct {
	*httptest.ResponseRecorder
	mu sync.Mutex
}

func (a *answer) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ResponseRecorder.Write(b)
}

func (a *answer) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Body.String()
}

// A daemon that has just started and not read its journal yet does not say of a pod that it does not know that nothing
// of it is mounted: an agent removes the pod's directories then.
func TestAWaitForUnmountedWaitsForTheJournal(t *testing.T) {
	for _, read := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, journal := newBackend(Facts{}), make(chan struct{})
			s := &Server{
				cfg: Config{
					FollowPods: b.FollowPods, Volumes: b, Health: b, Logger: slog.New(slog.DiscardHandler),
					Settle: func(ctx context.Context) error {
						select {
						case <-journal:
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					},
				},
				pods: podList{follow: b.FollowPods}, stopping: make(chan struct{}),
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := &answer{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(ctx, "GET", "/v1/pods/n/a/wait?for=unmounted&timeout=1m", nil)
			r.SetPathValue("ns", "n")
			r.SetPathValue("name", "a")
			go s.wait(a, r)
			said := func(when string, done, timedOut bool) {
				t.Helper()
				synctest.Wait()
				text := a.text()
				if strings.Contains(text, `"done":true`) != done || strings.Contains(text, `"timedOut":true`) != timedOut {
					t.Errorf("read %v, %s: %s", read, when, text)
				}
			}
			said("before the journal is read", false, false)
			if !read {
				time.Sleep(time.Minute)
				said("after the timeout", false, true)
				return
			}
			mounted := aPod("a")
			mounted.Volumes = []manager.PodVolumeStatus{{ID: "d^v", Phase: state.Present}}
			b.set(func(f *Facts) { f.Pods = []manager.PodStatus{mounted} })
			close(journal)
			said("with a mounted volume", false, false)
			b.set(func(f *Facts) { f.Pods = nil })
			said("after the unmount", true, false)
		})
	}
}
