//go:build cluster

package cluster

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// wire is a node's connection to the API server, which the test can cut.
type wire struct {
	listener net.Listener

	mu    sync.Mutex // guards the fields below
	to    string
	cut   bool
	conns map[net.Conn]bool
}

// wired returns the identity with its own wire to the API server.
func wired(t *testing.T, identity *rest.Config) (*rest.Config, *wire) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{listener: l, to: strings.TrimPrefix(control.url, "https://"), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); w.set(true) })
	go w.serve()
	c := rest.CopyConfig(identity)
	c.Host = "https://" + l.Addr().String()
	return c, w
}

func (w *wire) serve() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.pass(in)
	}
}

func (w *wire) pass(in net.Conn) {
	defer in.Close()
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	w.mu.Lock()
	refused := w.cut
	w.conns[in] = true
	w.mu.Unlock()
	if refused {
		return
	}
	go func() { _, _ = io.Copy(out, in); out.Close() }()
	_, _ = io.Copy(in, out)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, in)
}

// set cuts or restores the wire.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.conns {
			c.Close()
		}
	}
}
