package server

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connections knows which connections of a server are neither idle nor closed:
// a request is under way on them, or their first one is still to come.
type connections struct {
	mu   sync.Mutex
	busy map[net.Conn]struct{}
	none chan struct{} // closed when none is busy; nil while nobody waits
}

// note is the server's ConnState.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateNew || state == http.StateActive {
		c.busy[conn] = struct{}{}
		return
	}
	delete(c.busy, conn)
	if len(c.busy) == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// wait returns when none is busy, or ctx ends. One may wait at a time.
func (c *connections) wait(ctx context.Context) {
	c.mu.Lock()
	if len(c.busy) == 0 {
		c.mu.Unlock()
		return
	}
	none := make(chan struct{})
	c.none = none
	c.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// answerAccepted accepts no connection any more and answers who has one, for
// stopTimeout: http.Server.Shutdown closes those whose request it has not read
// yet. Who is not accepted waits for the next daemon, where systemd has the socket.
func (s *Server) answerAccepted(ctx context.Context, api *http.Server, served <-chan struct{}, open *connections) {
	_ = s.api.UnixListener.Close() // a failure has closed it, too
	<-served                       // whoever was accepted is known then
	api.SetKeepAlivesEnabled(false)
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	open.wait(ctx)
}
