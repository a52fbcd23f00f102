package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// healthHandler serves metrics, health and, if asked to, the status page to
// anybody who reaches the port. It tells nothing of a volume's content, and no secret.
func (s *Server) healthHandler() http.Handler {
	mux := http.NewServeMux()
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.metrics())
	}
	if s.cfg.Page {
		mux.Handle("GET /ui/", s.page())
		mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		missing := s.cfg.Health.NotReady()
		if len(missing) == 0 {
			_, _ = fmt.Fprintln(w, "ok")
			for _, d := range s.cfg.Health.Degraded() {
				_, _ = fmt.Fprintln(w, "degraded:", d)
			}
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, m := range missing {
			_, _ = fmt.Fprintln(w, m)
		}
	})
	return mux
}

func (s *Server) metrics() http.Handler {
	return promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{})
}
