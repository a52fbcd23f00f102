package server

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConnections bounds the connections to the HTTP address, which every user of this host
// can open, and to the socket by users who may only read; scrapers, probes and agents need
// only a few.
const maxConnections = 256

// connLimiter limits connections to a server. If there is one too many, it closes the one
// that has been without a request for the longest, or else the one with the oldest
// request. So the server answers a new probe, however many connections others keep
// open.
type connLimiter struct {
	most int
	// exempt says which connections do not count; nil for none.
	exempt func(net.Conn) bool

	mu      sync.Mutex // guards the fields below
	waiting []net.Conn // without a request; the longest idle first
	asking  []net.Conn // with a request; the oldest request first
}

// limit makes srv close the connections that are too many.
func (c *connLimiter) limit(srv *http.Server) {
	before := srv.ConnState
	srv.ConnState = func(conn net.Conn, state http.ConnState) {
		before(conn, state)
		if out := c.move(conn, state); out != nil {
			_ = out.Close() // the server notices
		}
	}
}

// move records a connection's new state and returns the connection that has to be
// closed, if any.
func (c *connLimiter) move(conn net.Conn, state http.ConnState) (out net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case state != http.StateNew && !slices.Contains(c.waiting, conn) && !slices.Contains(c.asking, conn):
		return nil // exempt, or being closed
	case state == http.StateNew && c.exempt != nil && c.exempt(conn):
		return nil
	}
	c.waiting, c.asking = without(c.waiting, conn), without(c.asking, conn)
	switch state {
	case http.StateNew, http.StateIdle:
		c.waiting = append(c.waiting, conn)
	case http.StateActive:
		c.asking = append(c.asking, conn)
	default:
		return nil
	}
	if len(c.waiting)+len(c.asking) <= c.most {
		return nil
	}
	if out = c.oldest(conn); out != nil {
		c.waiting, c.asking = without(c.waiting, out), without(c.asking, out)
	}
	return out
}

// oldest returns the connection to close in favor of conn.
func (c *connLimiter) oldest(conn net.Conn) net.Conn {
	for _, list := range [][]net.Conn{c.waiting, c.asking} {
		for _, other := range list {
			if other != conn {
				return other
			}
		}
	}
	return nil
}

// without returns the list without conn, in the same order.
func without(list []net.Conn, conn net.Conn) []net.Conn {
	for i, other := range list {
		if other == conn {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
