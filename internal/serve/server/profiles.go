package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
)

// profiles serves net/http/pprof. A profile shows parts of the process's memory, so
// members of the readers' group are refused.
func profiles(s *Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !peerOf(r).owner() {
			s.fail(w, fmt.Errorf("%w: only root may read profiles", ErrForbidden))
			return
		}
		mux.ServeHTTP(w, r)
	})
}
