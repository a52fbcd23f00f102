package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// deadlines records the write deadline of a response.
type deadlines struct {
	*httptest.ResponseRecorder
	write time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }

func (d *deadlines) SetReadDeadline(time.Time) error { return nil }

// A reader of blocks copies the data of one line before it reads the next: it may leave an answer unread for hours.
func TestAReaderOfBlocksMayBeSlow(t *testing.T) {
	s := &Server{cfg: config(t, newBackend(Facts{})), stopping: make(chan struct{})}
	s.cfg.Storage = operator{t}
	ctx := context.WithValue(t.Context(), peerKey{}, peer{uid: uint32(os.Geteuid())})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/snapshots/default/monday/blocks", nil)
	r.SetPathValue("ns", "default")
	r.SetPathValue("name", "monday")
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s.blocks(w, r)
	if w.Code != http.StatusOK || time.Until(w.write) < MaxWait/2 {
		t.Errorf("code %d, a write may take %v", w.Code, time.Until(w.write))
	}
}
