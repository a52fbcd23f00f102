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

	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

// socket dials the driver's socket, and knows which connection's driver was
// asked who it is.
type socket struct {
	path  string
	peers []uint32 // Config.Peers

	mu    sync.Mutex          // guards all below
	conn  net.Conn            // the last connection made
	id    unixsocket.Identity // of the socket that it was made to
	made  int                 // counts the connections made
	known int                 // is made as it was when the driver was asked last; 0 before
	wake  func()              // called once at the next connection
}

// dial is gRPC's context dialer; the address that gRPC gives is the path's.
func (s *socket) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, id, err := identified(ctx, s.path, func() (net.Conn, error) {
		return unixsocket.DialTrusted(ctx, s.path, s.peers...)
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.id = conn, id
	s.made++
	if s.wake != nil {
		s.wake()
		s.wake = nil
	}
	return conn, nil
}

// identified returns a connection that connect makes, and the identity of the socket at
// path that it was made to: the one before and after. A socket that appears, or is replaced,
// in between is connected to again: as another than it is it would be taken for a
// replacement, and the driver for lost.
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

// connections returns how many were made, and whether the last one's driver is known.
func (s *socket) connections() (made int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.made == s.known
}

// setKnown says that the driver behind connection number made said who it is.
func (s *socket) setKnown(made int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = made
}

// wakeAfter has wake called once there is a connection after number made.
func (s *socket) wakeAfter(made int, wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != made {
		wake()
		return
	}
	s.wake = wake
}

// dropReplaced closes the connection if another socket took its path: a
// connection to the old one goes on talking to the old process for ever.
func (s *socket) dropReplaced() {
	now := unixsocket.Identify(s.path, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && now != (unixsocket.Identity{}) && now != s.id {
		s.conn.Close()
		s.conn = nil
	}
}

// Kick says that the driver may be back, or replaced: a socket of another
// identity is connected to, and a pause between attempts is cut short.
func (d *Driver) Kick() {
	d.sock.dropReplaced()
	d.conn.ResetConnectBackoff()
	d.conn.Connect()
}

// askKey marks the context of calls by which a driver is asked who it is.
type askKey struct{}

func asking(ctx context.Context) context.Context { return context.WithValue(ctx, askKey{}, true) }

// gate lets no call through to a process that was not asked who it is: one that
// took over the endpoint gets no request, and no secret. gRPC consults it when
// the call has its connection, so it holds even for a call that was begun on
// the one before.
type gate struct{ d *Driver }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (g gate) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if _, known := g.d.sock.connections(); known || ctx.Value(askKey{}) != nil {
		return nil, nil
	}
	return nil, status.Error(codes.Unavailable, "driver came back and was not asked yet what it is")
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (gate) RequireTransportSecurity() bool { return false }

// watch follows the connection until ctx ends. It alone calls onChange and,
// after Dial, writes info.
func (d *Driver) watch(ctx context.Context) {
	up, reason := true, ""
	lost := func(err error) {
		if !up && reason == err.Error() {
			return
		}
		up, reason = false, err.Error()
		d.log.Warn("driver is away", "err", err)
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
		case s == connectivity.Ready && !up:
			info, err := d.readInfo(ctx)
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
			d.log.Info("driver is back")
			d.onChange(info, nil)
		}
		d.sock.wakeAfter(made, cancel)
		d.conn.WaitForStateChange(wait, s)
		cancel()
	}
}

// away reports whether the connection whose driver was asked last is lost, from the
// state that gRPC says and from whether a newer connection was made. gRPC lets calls
// over a new connection through before it says Ready of it, so Dial may return while
// it says Connecting still: until it has settled, on another state than that, the
// connection that answered Dial is not lost.
func away(s connectivity.State, known, settled bool) bool {
	return settled && s != connectivity.Ready || !known
}

// watchSocket kicks when something happens where the driver's socket is, until
// ctx ends. Without it a driver's return is noticed within redialMax, and the
// replacement of a socket whose old process lives on is not.
func (d *Driver) watchSocket(ctx context.Context) {
	defer d.events.Close()
	d.sock.dropReplaced() // it may have been replaced before the watch began
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-d.events.Events:
			if e.Name == d.endpoint && e.Has(fsnotify.Create) {
				d.Kick()
			}
		case <-d.events.Errors: // an overflow: the event may be among those lost
			d.Kick()
		}
	}
}

// addWatch watches the socket's directory; again if it is so already, which
// matters where the directory was removed and made anew.
func (d *Driver) addWatch() {
	if d.events == nil {
		return
	}
	if err := d.events.Add(filepath.Dir(d.endpoint)); err != nil {
		d.log.Warn("cannot watch the driver's socket", "err", err)
	}
}
