package kube_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
)

// reach returns clients of the server at url that have a token.
func reach(t *testing.T, url string) *kubeclient.Clients {
	t.Helper()
	c := &rest.Config{Host: url, BearerToken: "NODE-TOKEN", TLSClientConfig: rest.TLSClientConfig{Insecure: strings.HasPrefix(url, "https")}}
	c.Wrap(kube.Transport)
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	all, err := kubeclient.New(c, h)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A redirect to another server, or from https to http, is not followed: the node's token would go there. One to another
// path of the server is.
func TestAttackARedirectGetsNoToken(t *testing.T) {
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			stolen.Add(1)
		}
	}))
	defer thief.Close()
	var to string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/moved/") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}`)
			return
		}
		http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
	})
	for _, server := range []*httptest.Server{httptest.NewServer(handler), httptest.NewTLSServer(handler)} {
		c := reach(t, server.URL)
		to = thief.URL + "/stolen"
		if _, err := c.Core.Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err == nil ||
			!strings.Contains(err.Error(), "redirects to "+thief.URL) {
			t.Errorf("get: %v", err)
		}
		if _, err := c.Core.CreateToken(t.Context(), "default", "sa", nil); err == nil {
			t.Error("create: answered")
		}
		if w, err := c.Core.Secrets("default").Watch(t.Context(), metav1.ListOptions{}); err == nil {
			w.Stop()
			t.Error("watch: answered")
		}
		to = "/moved"
		if _, err := c.Core.Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
			t.Errorf("another path: %v", err)
		}
		server.Close()
	}
	// An API server that sends http to its https, as a proxy before it may, is followed as before.
	secure := httptest.NewTLSServer(handler)
	defer secure.Close()
	plain := httptest.NewServer(handler)
	defer plain.Close()
	c := &rest.Config{Host: plain.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	c.Wrap(kube.Transport)
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.CloseIdleConnections()
	all, err := kubeclient.New(c, h)
	if err != nil {
		t.Fatal(err)
	}
	to = secure.URL + "/moved"
	if _, err := all.Core.Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err != nil {
		t.Errorf("to https: %v", err)
	}
	if n := stolen.Load(); n > 0 {
		t.Errorf("the token was sent %d times", n)
	}
}

// An endless answer ends at its limit, and so does an endless event of a watch. A watch as a whole has no limit, and
// braces in texts are no end of an event.
func TestAttackAnAnswerWithoutEnd(t *testing.T) {
	var read atomic.Int64
	text := strings.Repeat("x", 1<<20)
	flood := func(w io.Writer, r *http.Request) {
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, text)
			read.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"`)
			flood(w, r)
			return
		}
		for i := range 40 { // 40 MiB of events
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s%d","annotations":{"a":"}\"{%s"}}}}`+"\n", i, text)
		}
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"}\"}`)
		flood(w, r)
	}))
	defer server.Close()
	c := reach(t, server.URL)
	if _, err := c.Core.Secrets("default").Get(t.Context(), "s", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "longer than 64 MiB") {
		t.Errorf("get: %v", err)
	}
	if n := read.Swap(0); n > 96<<20 {
		t.Errorf("%d MiB were read", n>>20)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := c.Core.Secrets("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	events := 0
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			if s, ok := e.Object.(*metav1.Status); !ok || !strings.Contains(s.Message, "longer than 16 MiB") {
				t.Errorf("the watch ends with %+v", e.Object)
			}
			break
		}
		if s, ok := e.Object.(*corev1.Secret); !ok || s.Name != fmt.Sprintf("s%d", events) {
			t.Fatalf("event %d: %+v", events, e)
		}
		events++
	}
	if n := read.Load(); events != 40 || n > 32<<20 {
		t.Errorf("%d events, and %d MiB of the endless one", events, n>>20)
	}
}
