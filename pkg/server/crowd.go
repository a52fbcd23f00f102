package server

import (
	"net"
	"net/http"
	"sync"
)

// maxCrowd bounds the connections to the HTTP address, which every user of this host
// may open: who scrapes and probes needs a few.
const maxCrowd = 256

// crowd keeps the connections of a server few. Where one more comes, the one that has
// been longest without a request goes, and where all have one, the one whose request is
// the oldest: a new probe is answered whatever others keep open.
type crowd struct {
	most int

	mu      sync.Mutex // guards what follows
	waiting []net.Conn // without a request, the longest first
	asking  []net.Conn // with one, the oldest first
}

// note is the server's ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	if out := c.move(conn, state); out != nil {
		_ = out.Close() // the server hears of it
	}
}

// move takes account of a connection's state, and returns the one that has to go.
func (c *crowd) move(conn net.Conn, state http.ConnState) (out net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// oldest is the connection that has to go for conn.
func (c *crowd) oldest(conn net.Conn) net.Conn {
	for _, list := range [][]net.Conn{c.waiting, c.asking} {
		for _, other := range list {
			if other != conn {
				return other
			}
		}
	}
	return nil
}

// without returns the list without a connection, in its order.
func without(list []net.Conn, conn net.Conn) []net.Conn {
	for i, other := range list {
		if other == conn {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
