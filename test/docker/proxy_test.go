//go:build docker

package docker

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// proxy stands between the container engines and the plugin, and calls a function at each step of a
// request.
type proxy struct {
	server *http.Server
	client *http.Client

	one sync.Mutex // held at a step: there is one at a time
	mu  sync.Mutex // guards the fields below
	// at is called at each step; if it returns false, the engine gets no answer. nil does nothing.
	at func(step) bool
}

// step is the time before a request reaches the plugin, or after the plugin has answered and before
// the engine has the answer.
type step struct {
	method string
	after  bool
	pid    int // the process that sends the request
}

func (s step) String() string {
	if s.after {
		return "after " + s.method
	}
	return "before " + s.method
}

// newProxy listens at socket until the test ends, and forwards requests to the plugin.
func newProxy(t *testing.T, socket, plugin string) *proxy {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", plugin)
	}}
	p := &proxy{client: &http.Client{Transport: transport}}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ConnContext: withPID}
	go p.server.Serve(l)
	t.Cleanup(func() {
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// ServeHTTP forwards a request. If the plugin does not answer, the engine gets no answer.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	method := r.URL.Path[len("/"):]
	pid, _ := r.Context().Value(pidKey{}).(int)
	if !p.step(step{method, false, pid}) {
		panic(http.ErrAbortHandler)
	}
	answer, status := p.pass(r, body)
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	if !p.step(step{method, true, pid}) {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	w.Write(answer) // a killed engine does not read it
}

func (p *proxy) pass(r *http.Request, body []byte) (answer []byte, status int) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://plugin"+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, 0
	}
	out.Header = r.Header.Clone()
	got, err := p.client.Do(out)
	if err != nil {
		return nil, 0
	}
	defer got.Body.Close()
	if answer, err = io.ReadAll(got.Body); err != nil {
		return nil, 0
	}
	return answer, got.StatusCode
}

func (p *proxy) step(s step) bool {
	p.mu.Lock()
	at := p.at
	p.mu.Unlock()
	if at == nil {
		return true
	}
	p.one.Lock()
	defer p.one.Unlock()
	return at(s)
}

// pidKey is the context key for the process at the other end of a connection.
type pidKey struct{}

func withPID(ctx context.Context, c net.Conn) context.Context {
	peer, err := unixsocket.Peer(c)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, pidKey{}, int(peer.Pid))
}

// watch makes the proxy call f at each step from now on.
func (p *proxy) watch(f func(step) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = f
}
