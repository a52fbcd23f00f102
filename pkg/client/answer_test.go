package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
)

// answering serves h at a socket and returns a client of it, for answers that a test cannot
// get from a daemon.
func answering(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	must(t, err)
	s, ended := &http.Server{Handler: h}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	c := New(socket)
	t.Cleanup(func() {
		c.Close()
		_ = s.Close()
		<-ended
	})
	return c
}

func TestEveryReasonHasItsError(t *testing.T) {
	all := []error{ErrNotFound, ErrInvalid, ErrConflict, ErrForbidden, ErrTooLarge, ErrBusy}
	for _, tt := range []struct {
		status int
		reason string
		want   error
	}{
		{404, "notFound", ErrNotFound},
		{400, "invalid", ErrInvalid},
		{409, "conflict", ErrConflict},
		{403, "forbidden", ErrForbidden},
		{413, "tooLarge", ErrTooLarge},
		{503, "busy", ErrBusy},
		{500, "internal", nil},
		{418, "new", nil},
	} {
		c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			fmt.Fprintf(w, `{"error":"pod default/web: no","reason":%q}`, tt.reason)
		})
		_, err := c.Pod(t.Context(), "default", "web")
		e, ok := errors.AsType[*Error](err)
		want := Error{Status: tt.status, Reason: tt.reason, Message: "pod default/web: no"}
		if !ok || *e != want || err.Error() != want.Message {
			t.Errorf("%s: got %#v", tt.reason, err)
		}
		for _, one := range all {
			if errors.Is(err, one) != (one == tt.want) {
				t.Errorf("%s: is %q: %t", tt.reason, one, errors.Is(err, one))
			}
		}
	}
}

func TestAnswerOfAnotherServerIsNoRefusal(t *testing.T) {
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not here", http.StatusNotFound) })
	_, err := c.Pods(t.Context())
	if _, ok := errors.AsType[*Error](err); err == nil || ok || errors.Is(err, ErrNotFound) {
		t.Errorf("got %#v", err)
	}
}

// The daemon ends a wait after a day; the caller waits on.
func TestOnlyTheContextEndsAWait(t *testing.T) {
	var lines []string
	asked := 0
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Query().Get("for") != "mounted" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = io.WriteString(w, lines[asked-1])
	})
	lines = []string{
		`{"pod":{"ready":false},"known":true}` + "\n" + `{"pod":{"ready":false},"known":true,"timedOut":true}` + "\n",
		`{"pod":{"ready":true},"known":true,"done":true}` + "\n",
	}
	var ready []bool
	last, err := c.Wait(t.Context(), "default", "web", Mounted, func(p Progress) { ready = append(ready, p.Pod.Ready) })
	if err != nil || !last.Done || asked != 2 || !slices.Equal(ready, []bool{false, false, true}) {
		t.Errorf("%+v, %v after %d requests and %v", last, err, asked, ready)
	}
	// A daemon that stops ends it with an error, and the last state.
	asked, lines = 0, []string{`{"pod":{"pod":{"name":"web"}},"known":true}` + "\n"}
	last, err = c.Wait(t.Context(), "default", "web", Mounted, nil)
	if !errors.Is(err, ErrCut) || last.Pod.Pod.Name != "web" {
		t.Errorf("%+v, %v", last, err)
	}
}

// Names are parts of a path, whatever they hold, and the manifest's is a part of the query.
func TestNamesAreEscaped(t *testing.T) {
	var got []string
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.RequestURI)
		_, _ = io.WriteString(w, "{}")
	})
	ctx := t.Context()
	_, err := c.Pod(ctx, "a/b", "c?d")
	_, err2 := c.Explain(ctx, "volume", "d^a/b")
	_, err3 := c.ContainerMounts(ctx, "n", "p", "c/d", RuntimeFeatures{})
	_, err4 := c.Apply(ctx, "web & co.yaml", nil)
	_, err5 := c.Withdraw(ctx, "a#b", nil)
	_, err6 := c.MountNamed(ctx, "shop/db")
	_, err7 := c.RemoveNamed(ctx, "shop/db")
	must(t, errors.Join(err, err2, err3, err4, err5, err6, err7))
	want := []string{
		"GET /v1/pods/a%2Fb/c%3Fd", "GET /v1/explain/volume/d%5Ea%2Fb", "POST /v1/pods/n/p/containers/c%2Fd/mounts",
		"POST /v1/apply?file=web+%26+co.yaml", "POST /v1/withdraw?file=a%23b", "POST /v1/named-mounts/shop%2Fdb",
		"DELETE /v1/named/shop%2Fdb",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
