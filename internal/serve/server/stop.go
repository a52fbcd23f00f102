package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections tracks the connections of a server that are neither idle nor closed.
type connections struct {
	now func() time.Time

	mu sync.Mutex // guards the fields below
	// asked are the connections with a request in flight.
	asked map[net.Conn]struct{}
	// silent are the connections whose first request has not fully arrived, with the
	// times when they were accepted.
	silent map[net.Conn]time.Time
	// fewer is closed when a connection leaves asked or silent; nil unless answer
	// waits.
	fewer chan struct{}
}

func newConnections(now func() time.Time) *connections {
	return &connections{now: now, asked: map[net.Conn]struct{}{}, silent: map[net.Conn]time.Time{}}
}

// note is the server's ConnState hook.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.silent[conn] = c.now()
		return
	case http.StateActive:
		delete(c.silent, conn)
		c.asked[conn] = struct{}{}
		return
	}
	delete(c.silent, conn)
	delete(c.asked, conn)
	if c.fewer != nil {
		close(c.fewer)
		c.fewer = nil
	}
}

// waitIdle returns when no request is in flight or about to arrive, or when ctx ends.
// It closes connections that have been silent for askTimeout. Only one call may run at
// a time.
func (c *connections) waitIdle(ctx context.Context) {
	timer := time.NewTimer(askTimeout)
	defer timer.Stop()
	for {
		next, fewer := c.closeSilent()
		if fewer == nil {
			return
		}
		timer.Reset(next)
		select {
		case <-fewer:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// closeSilent closes the connections that have sent no request in time. It returns when
// to check again, and a channel that is closed when there are fewer connections; the
// channel is nil if none is left.
func (c *connections) closeSilent() (next time.Duration, fewer <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = askTimeout
	for conn, since := range c.silent {
		if left := askTimeout - c.now().Sub(since); left > 0 {
			next = min(next, left)
			continue
		}
		_ = conn.Close() // the server notices; it owes this client no answer
		delete(c.silent, conn)
	}
	if len(c.silent)+len(c.asked) == 0 {
		return 0, nil
	}
	c.fewer = make(chan struct{})
	return next, c.fewer
}
