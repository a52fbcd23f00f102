package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
)

// When the daemon ends, it sends the remaining traces; without an endpoint there are none,
// and with a wrong one the start fails.
func TestCallsAreTracedWhereACollectorIsNamed(t *testing.T) {
	asked := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer s.Close()
	logger := slog.New(slog.DiscardHandler)
	cfg := wire.Config{Name: "n"}
	end, err := traced(t.Context(), &cfg, s.URL, logger)
	if err != nil {
		t.Fatal(err)
	}
	cfg.OnCall(manager.EndedCall{Volume: "d^v", Driver: "d", Op: plan.Stage, Began: time.Now()})
	end()
	if path := <-asked; path != "/v1/traces" {
		t.Errorf("sent to %s", path)
	}
	cfg = wire.Config{}
	if end, err := traced(t.Context(), &cfg, "", logger); err != nil || cfg.OnCall != nil {
		t.Errorf("without an endpoint: %v, %t", err, cfg.OnCall != nil)
	} else {
		end()
	}
	if _, err := traced(t.Context(), &cfg, "collector:4317", logger); err == nil {
		t.Error("no URL, and no error")
	}
}
