package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections knows which connections of a server are neither idle nor closed.
type connections struct {
	now func() time.Time

	mu sync.Mutex // guards what follows
	// asked are those on which a request is under way.
	asked map[net.Conn]struct{}
	// silent are those whose first request has not come, or not wholly, by when
	// they were accepted.
	silent map[net.Conn]time.Time
	// fewer is closed when one of either has gone; nil while no request waits.
	fewer chan struct{}
}

func newConnections(now func() time.Time) *connections {
	return &connections{now: now, asked: map[net.Conn]struct{}{}, silent: map[net.Conn]time.Time{}}
}

// note is the server's ConnState.
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

// answer returns when no request is under way or to come, or ctx ends. Nothing
// is to come of who has been silent for askTimeout: those are closed. One may
// wait at a time.
func (c *connections) answer(ctx context.Context) {
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
// to look again, and a channel that signals that there are fewer; nil where there is none.
func (c *connections) closeSilent() (next time.Duration, fewer <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next = askTimeout
	for conn, since := range c.silent {
		if left := askTimeout - c.now().Sub(since); left > 0 {
			next = min(next, left)
			continue
		}
		_ = conn.Close() // the server hears of it, and has nothing to say to it
		delete(c.silent, conn)
	}
	if len(c.silent)+len(c.asked) == 0 {
		return 0, nil
	}
	c.fewer = make(chan struct{})
	return next, c.fewer
}
