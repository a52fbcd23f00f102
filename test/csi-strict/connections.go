package csistrict

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/stats"
)

// connections has the callers' connections. It implements stats.Handler to identify them.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// connKey is the key of a connection's count of questions in a call's context.
type connKey struct{}

// TagConn implements stats.Handler.
func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, new(int))
}

// TagRPC implements stats.Handler.
func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (*connections) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC implements stats.Handler.
func (*connections) HandleRPC(context.Context, stats.RPCStats) {}

// asked counts the requests for abilities on the call's connection, including this one.
func (a *connections) asked(ctx context.Context) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := ctx.Value(connKey{}).(*int)
	if !ok {
		return 1
	}
	*n++
	return *n
}

// drop closes all connections.
func (a *connections) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.open {
		c.Close()
	}
	clear(a.open)
}

// conns is a listener that knows its connections.
type conns struct {
	net.Listener
	all *connections
}

// Accept implements net.Listener.
func (l *conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if l.all.open == nil {
		l.all.open = map[net.Conn]struct{}{}
	}
	l.all.open[c] = struct{}{}
	return &tracked{Conn: c, all: l.all}, nil
}

// tracked is a connection that is forgotten when it is closed.
type tracked struct {
	net.Conn
	all *connections
}

// Close implements net.Conn.
func (c *tracked) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c.Conn)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// listen makes a socket, and replaces one that a killed driver left.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}
