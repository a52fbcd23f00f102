package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// manifestRoutes adds the paths whose body is a manifest.
func (s *Server) manifestRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/apply", s.manifest("apply", s.cfg.Objects.Apply))
	mux.HandleFunc("POST /v1/check", s.check)
	mux.HandleFunc("POST /v1/withdraw", s.manifest("withdraw", s.cfg.Objects.Withdraw))
}

// manifest serves a request with a manifest as its body. The query parameter file is
// the manifest's name in messages.
func (s *Server) manifest(verb string, do func(context.Context, Manifest) ([]Applied, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m, err := readManifest(w, r)
		if err != nil {
			s.fail(w, err)
			return
		}
		done, err := do(r.Context(), m)
		s.note(r, verb, m.Name, appliedText(done), err)
		s.reply(w, List[Applied]{Items: nonNil(done)}, err)
	}
}

// check returns the error that would refuse a manifest. It changes nothing, so it
// writes nothing to the audit log.
func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	m, err := readManifest(w, r)
	if err == nil {
		m.Check = true
		_, err = s.cfg.Objects.Apply(r.Context(), m)
	}
	s.reply(w, List[Applied]{Items: []Applied{}}, err)
}

// readManifest reads the manifest in the body of r.
func readManifest(w http.ResponseWriter, r *http.Request) (Manifest, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxManifest))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		err = fmt.Errorf("%w: the manifest is over %d bytes", ErrTooLarge, MaxManifest)
	}
	q := r.URL.Query()
	return Manifest{Name: cmp.Or(q.Get("file"), "-"), Data: data, SkipUnknown: q.Get("skipUnknown") == "true"}, err
}

// appliedText lists the result for each object, for the audit log.
func appliedText(done []Applied) string {
	words := make([]string, len(done))
	for i, a := range done {
		words[i] = a.Result + " " + a.Kind + " " + strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")
	}
	return strings.Join(words, ", ")
}
