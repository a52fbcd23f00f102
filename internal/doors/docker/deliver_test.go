package docker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// broken is a connection that breaks when the server writes an answer.
type broken struct{ http.ResponseWriter }

func (broken) SetReadDeadline(time.Time) error  { return nil }
func (broken) SetWriteDeadline(time.Time) error { return nil }
func (broken) FlushError() error                { return io.ErrClosedPipe }

// counted counts mounts by id.
type counted struct {
	Volumes
	mounts map[string]int
}

func (c counted) Mount(_ context.Context, _, id string, _ int32) (string, error) {
	c.mounts[id]++
	return "/m", nil
}

func (c counted) Unmount(ctx context.Context, _, id string) error {
	c.mounts[id]--
	return ctx.Err()
}

func TestMountWhoseAnswerIsNotDeliveredIsTakenBack(t *testing.T) {
	c := counted{mounts: map[string]int{}}
	s := &Server{cfg: Config{Volumes: c, Logger: slog.New(slog.DiscardHandler)}, stopping: make(chan struct{})}
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, peer{}),
		http.MethodPost, "/VolumeDriver.Mount", strings.NewReader(`{"Name":"db","ID":"c1"}`))
	s.handler().ServeHTTP(broken{httptest.NewRecorder()}, r)
	if n, asked := c.mounts["c1"]; n != 0 || !asked {
		t.Errorf("%d mounts are counted (mounted: %v), want 0", n, asked)
	}
}

func TestConnectionWithoutCredentialsIsRefused(t *testing.T) {
	if err := allowed(t.Context()); err == nil {
		t.Error("a connection that says nothing of its peer is allowed")
	}
	if err := allowed(withPeer(t.Context(), nil)); err == nil {
		t.Error("a connection that has no credentials is allowed")
	}
	if err := allowed(context.WithValue(t.Context(), peerKey{}, peer{refused: errors.New("no")})); err == nil {
		t.Error("a peer that is refused is allowed")
	}
}
