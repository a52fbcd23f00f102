package csiclient

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// socket dials the driver's socket, and knows for which connection Info was read.
type socket struct {
	path    string
	peers   []uint32 // Config.Peers
	address string   // host:port of another machine; path is "" then

	mu    sync.Mutex          // guards the fields below
	conn  net.Conn            // the last connection made
	id    unixsocket.Identity // the socket that conn was made to
	made  int                 // number of connections made
	known int                 // number of the connection for which Info was last read; 0 before
	wake  func()              // called once at the next connection
	err   error               // why the last attempt to connect failed
}

// dial is gRPC's context dialer. It ignores the address, which is always s.path or s.address.
func (s *socket) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, id, err := s.open(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err != nil {
		return nil, err
	}
	s.conn, s.id = conn, id
	s.made++
	if s.wake != nil {
		s.wake()
		s.wake = nil
	}
	return conn, nil
}

// open makes a connection.
func (s *socket) open(ctx context.Context) (net.Conn, unixsocket.Identity, error) {
	if s.remote() {
		conn, err := remoteDialer().DialContext(ctx, "tcp", s.address)
		return conn, unixsocket.Identity{}, err
	}
	return identified(ctx, s.path, func() (net.Conn, error) {
		return unixsocket.DialTrusted(ctx, s.path, s.peers...)
	})
}

// failure returns why the last attempt to connect failed; nil if it did not.
func (s *socket) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// identified calls connect and returns the connection with the identity of the socket
// at path. If the identity changes during connect, it connects again: a connection
// recorded with the wrong identity would look as if its socket had been replaced, and
// the driver would count as lost.
func identified(
	ctx context.Context, path string, connect func() (net.Conn, error),
) (net.Conn, unixsocket.Identity, error) {
	for {
		id := unixsocket.Identify(path, 0)
		conn, err := connect()
		if err != nil || unixsocket.Identify(path, 0) == id {
			return conn, id, err
		}
		conn.Close()
		if ctx.Err() != nil {
			return nil, unixsocket.Identity{}, context.Cause(ctx)
		}
	}
}

// connections returns how many connections were made, and whether Info was read over
// the last one.
func (s *socket) connections() (made int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.made == s.known
}

// setKnown records that Info was read over connection number made.
func (s *socket) setKnown(made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = made
}

// wakeAfter calls wake once there is a connection after number made.
func (s *socket) wakeAfter(made int, wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != made {
		wake()
		return
	}
	s.wake = wake
}

// dropReplaced closes the connection if another socket has taken its path. Otherwise
// the connection would lead to the old process for ever.
func (s *socket) dropReplaced() {
	now := unixsocket.Identify(s.path, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && now != (unixsocket.Identity{}) && now != s.id {
		s.conn.Close()
		s.conn = nil
	}
}

// kick says that the driver may be back or replaced. It drops a connection to a socket
// that was replaced, and cuts short a pause between attempts to connect.
func (d *Driver) kick() {
	d.sock.dropReplaced()
	d.conn.ResetConnectBackoff()
	d.conn.Connect()
}

// askKey marks the context of the calls of readInfo, which gate lets through.
type askKey struct{}

func asking(ctx context.Context) context.Context { return context.WithValue(ctx, askKey{}, true) }

// gate blocks calls to a process that has not identified itself by readInfo, so that
// another driver that took over the endpoint gets no request and no secret. gRPC
// consults it once a call has its connection, so it also blocks a call that began on
// the previous connection.
type gate struct{ d *Driver }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (g gate) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if _, known := g.d.sock.connections(); known || ctx.Value(askKey{}) != nil {
		return nil, nil
	}
	return nil, status.Error(codes.Unavailable, "driver came back and has not identified itself yet")
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (gate) RequireTransportSecurity() bool { return false }

// watch follows the connection until ctx ends. Only watch calls onChange and, after
// Dial, sets info.
func (d *Driver) watch(ctx context.Context) {
	up, reason := !d.controllerOnly, ""
	lost := func(err error) {
		if !up && reason == err.Error() {
			return
		}
		up, reason = false, err.Error()
		d.log.Warn(d.part()+" is away", "err", err)
		d.onChange(d.Info(), err)
	}
	pause, settled := askAgainMin, false
	for ctx.Err() == nil {
		s := d.conn.GetState()
		made, known := d.sock.connections()
		settled = settled || s != connectivity.Connecting
		if up && away(s, known, settled) && ctx.Err() == nil {
			lost(fmt.Errorf("connection to %s: lost", d.endpoint))
		}
		wait, cancel := context.WithCancel(ctx)
		switch {
		case s == connectivity.Idle:
			d.conn.Connect()
		case d.asks(s) && !up:
			info, err := d.ask(ctx, s)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				lost(err)
				cancel()
				wait, cancel = context.WithTimeout(ctx, pause)
				pause = min(2*pause, askAgainMax)
				break
			}
			d.info.Store(&info)
			d.sock.setKnown(made)
			up, reason, pause = true, "", askAgainMin
			d.addWatch()
			d.log.Info(d.part() + " is back")
			d.onChange(info, nil)
		}
		d.sock.wakeAfter(made, cancel)
		d.conn.WaitForStateChange(wait, s)
		cancel()
	}
}

// away reports whether the connection over which Info was read is lost. s is gRPC's
// state; known is false if there is a newer connection. gRPC makes calls over a new
// connection before its state becomes Ready, so Dial may return while the state is
// still Connecting; until it leaves that state once (settled), it does not mean that
// the connection is lost.
func away(s connectivity.State, known, settled bool) bool {
	return settled && s != connectivity.Ready || !known
}

// watchSocket calls kick when a socket appears at the driver's path, until ctx ends.
// Without it, a driver's return is noticed only within redialMax, and the replacement
// of a socket whose old process still runs is not noticed at all.
func (d *Driver) watchSocket(ctx context.Context) {
	defer d.events.Close()
	d.sock.dropReplaced() // it may have been replaced before the watch began
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.events.Events:
			if e.Name == d.endpoint && e.Has(fsnotify.Create) {
				d.kick()
			}
		case <-d.events.Errors: // an overflow may have lost the event
			d.kick()
		}
	}
}

// addWatch watches the socket's directory. Calling it again matters if the directory
// was removed and made again.
func (d *Driver) addWatch() {
	if d.events == nil {
		return
	}
	if err := d.events.Add(filepath.Dir(d.endpoint)); err != nil {
		d.log.Warn("cannot watch the driver's socket", "err", err)
	}
}
