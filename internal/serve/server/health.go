package server

import (
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server/ui"
)

// healthHandler serves metrics, health and, if configured, the status page to everyone
// who can reach the port. It reveals no content of volumes and no secrets.
func (s *Server) healthHandler() http.Handler {
	mux := http.NewServeMux()
	if s.cfg.Metrics != nil {
		mux.Handle("GET /metrics", s.requireOwnHost(s.metrics()))
	}
	if s.cfg.Page {
		mux.Handle("GET /ui/", s.page())
		mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		missing := s.cfg.Health.NotReady()
		if why := s.cfg.Health.Blocked(); why != "" {
			missing = append(missing, why)
		}
		if len(missing) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if !s.underOwnHost(r) { // such as a probe by an alias, for which the status is enough
			_, _ = fmt.Fprintln(w, "ask by address, or as localhost, to read more than the status of this answer")
			return
		}
		if len(missing) == 0 {
			_, _ = fmt.Fprintln(w, "ok")
			for _, d := range s.cfg.Health.Degraded() {
				_, _ = fmt.Fprintln(w, "degraded:", d)
			}
			return
		}
		for _, m := range missing {
			_, _ = fmt.Fprintln(w, m)
		}
	})
	return mux
}

// requireOwnHost refuses requests under another name than this machine's.
func (s *Server) requireOwnHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.underOwnHost(r) {
			http.Error(w, fmt.Sprintf("host %q: ask by address, as localhost, or by the name of the node (%s)", r.Host,
				s.cfg.Version.Node), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// underOwnHost reports whether the Host of a request is a name of this machine, to stop DNS rebinding from a page in a
// browser on this machine.
func (s *Server) underOwnHost(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	own, _ := os.Hostname()
	return ui.ByAddress(r.Host) || host == own || host == s.cfg.Version.Node
}

func (s *Server) metrics() http.Handler {
	return promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{})
}
