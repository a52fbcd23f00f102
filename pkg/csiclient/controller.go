package csiclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// remoteScheme begins an endpoint on another machine.
const remoteScheme = "tcp://"

// How soon a connection to another machine that no longer answers is given up: gRPC sees the
// end of a local socket at once, but not that of a machine.
const (
	aliveIdle     = 15 * time.Second
	aliveInterval = 15 * time.Second
	aliveCount    = 3
)

var errNoTLS = errors.New("an endpoint on another machine needs TLS, since it gets secrets")

// dialController is Dial for an endpoint with the Controller service alone.
func dialController(ctx context.Context, c Config) (*Driver, error) {
	d := newDriver(c)
	d.log = d.log.With("part", "controller")
	d.endpoint, d.sock = c.Endpoint, &socket{peers: c.Peers}
	var err error
	if address, remote := strings.CutPrefix(c.Endpoint, remoteScheme); remote {
		d.sock.address = address
		if _, _, err = net.SplitHostPort(address); err == nil && c.TLS == nil {
			err = errNoTLS
		}
	} else {
		d.endpoint, err = unixsocket.EndpointPath(c.Endpoint)
		d.sock.path = d.endpoint
	}
	if err == nil {
		err = d.connect(cmpOr(c.redial, redialMin))
	}
	if err != nil {
		return nil, fmt.Errorf("controller of driver %s: endpoint %s: %w", c.Name, c.Endpoint, err)
	}
	d.info.Store(&Info{Name: c.Name, Endpoint: d.endpoint})
	d.live(ctx)
	return d, nil
}

// remote reports whether the endpoint is on another machine.
func (s *socket) remote() bool { return s.address != "" }

func remoteDialer() *net.Dialer {
	return &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: aliveIdle, Interval: aliveInterval, Count: aliveCount,
	}}
}

// part names what the endpoint serves, for the log.
func (d *Driver) part() string {
	if d.controllerOnly {
		return "controller"
	}
	return "driver"
}

// asks reports whether the driver is asked for its Info in a state of the connection. Without a
// connection a call fails at once and says why there is none, which a controller's status shows.
func (d *Driver) asks(s connectivity.State) bool {
	return s == connectivity.Ready || d.controllerOnly && s == connectivity.TransientFailure
}

// ask reads Info, or returns why there is no connection (state s).
func (d *Driver) ask(ctx context.Context, s connectivity.State) (Info, error) {
	if s == connectivity.Ready {
		return d.readInfo(ctx)
	}
	if cause := d.sock.failure(); cause != nil {
		return Info{}, cmp.Or(d.foreignPeer(cause), cause)
	}
	i, err := d.readInfo(ctx)
	if e, ok := errors.AsType[*state.CallError](err); ok && e.Unanswered {
		return i, e.Err // the call was not made
	}
	return i, err
}

// handshaker notes why a handshake failed, which gRPC tells only in the text of a later call's error.
type handshaker struct {
	credentials.TransportCredentials
	sock *socket
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshaker) ClientHandshake(ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	made, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, conn)
	h.sock.mu.Lock()
	defer h.sock.mu.Unlock()
	h.sock.err = err
	return made, info, err
}
