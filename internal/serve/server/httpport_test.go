package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
)

// The HTTP address is for every user of the host: no request there changes anything, whatever its method, and none is a
// request of the API at the socket.
func TestTheHTTPAddressChangesNothing(t *testing.T) {
	cfg := config(t, newBackend(allFine()))
	cfg.HTTPAddress, cfg.Page = "127.0.0.1:0", true
	cfg.Note = func(a audit.Act, _ string, _ error) { t.Errorf("%s was done", a.Verb) }
	s, _ := start(t, cfg)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/", "/ui/", "/metrics", "/healthz", "/readyz", "/v1/apply", "/v1/pods/default/web"} {
			if code := httpDo(t, method, "http://"+s.HTTPAddress()+path); code != http.StatusMethodNotAllowed && code != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, path, code)
			}
		}
	}
	for _, path := range []string{"/v1/volumes", "/v1/version", "/v1/who?path=/", "/debug/pprof/"} {
		if code, text := httpGet(t, "http://"+s.HTTPAddress()+path); code != http.StatusNotFound {
			t.Errorf("GET %s: %d %.100q", path, code, text)
		}
	}
}

func httpDo(t *testing.T, method, url string) int {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return resp.StatusCode
}
