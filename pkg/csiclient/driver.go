package csiclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// How long a call may take. CSI leaves this to the caller ("Timeouts").
const (
	// defaultTimeout is the kubelet's timeout for every CSI call, with which vendors test.
	defaultTimeout = 2 * time.Minute
	// defaultInfoTimeout bounds all calls that read a driver's Info together. They
	// change nothing, but a driver may ask a cloud for its node id.
	defaultInfoTimeout = 30 * time.Second
	// defaultStatsTimeout is ample: statfs on working storage takes milliseconds.
	defaultStatsTimeout = 10 * time.Second

	// redialMin and redialMax are the shortest and longest pause between attempts to
	// connect to a socket without a listener. gRPC's own maximum of two minutes would
	// delay the return of a driver.
	redialMin = 50 * time.Millisecond
	redialMax = time.Second
	// redialMaxRemote is redialMax for another machine, which all nodes of a site ask.
	redialMaxRemote = 5 * time.Second
	// connectTimeout bounds a connect(2) to a local socket whose backlog is full.
	connectTimeout = 10 * time.Second
	// askAgainMin and askAgainMax are the shortest and longest pause between attempts
	// to read the Info of a driver that has come back but is not ready.
	askAgainMin = 200 * time.Millisecond
	askAgainMax = 10 * time.Second
)

// Deadlines bounds each call. A zero field means its default.
type Deadlines struct {
	// Stage, Publish, Unpublish, Unstage and Expand default to 2 minutes.
	Stage, Publish, Unpublish, Unstage, Expand time.Duration
	// Stats defaults to 10 seconds.
	Stats time.Duration
	// Info bounds all calls that read [Info] after connecting; it defaults to 30 seconds.
	Info time.Duration
}

func (d Deadlines) withDefaults() Deadlines {
	for _, t := range []*time.Duration{&d.Stage, &d.Publish, &d.Unpublish, &d.Unstage, &d.Expand} {
		*t = cmpOr(*t, defaultTimeout)
	}
	d.Stats = cmpOr(d.Stats, defaultStatsTimeout)
	d.Info = cmpOr(d.Info, defaultInfoTimeout)
	return d
}

func cmpOr(t, otherwise time.Duration) time.Duration {
	if t > 0 {
		return t
	}
	return otherwise
}

// SecretReader reads a secret when a call needs it. A Driver never keeps secrets.
type SecretReader interface {
	Secret(ctx context.Context, ref state.SecretRef) (map[string]string, error)
}

// Config is the configuration of a [Driver].
type Config struct {
	// Name is the registered name; GetPluginInfo must return the same.
	Name state.DriverName
	// Endpoint is the driver's socket: an absolute path or unix:///path. With TLS it is
	// tcp://host:port.
	Endpoint string
	// Peers are the users, besides root and this process's own, as whom the driver may
	// run. Others are refused, because the driver receives secrets and decides what the
	// node mounts.
	Peers []uint32
	// Root is the node's root directory. The Driver makes and removes directories
	// only beneath it.
	Root string
	// Secrets may be nil if no volume refers to a secret.
	Secrets SecretReader
	// Tokens may be nil; then volumes whose driver wants service account tokens
	// are not published.
	Tokens TokenSource
	// NodeOnly skips ControllerGetCapabilities; Info then only says whether the plugin has a
	// Controller service. In a cluster its sidecars call that service, possibly at another endpoint.
	NodeOnly bool
	// ControllerOnly is for an endpoint that serves the Controller service, and not the Node
	// service, of a driver. Dial then does not wait for an answer: OnChange is called for the
	// first connection too, and says why there is none.
	ControllerOnly bool
	// TLS proves to each other who is at the ends of a connection to tcp://host:port.
	TLS credentials.TransportCredentials
	// Deadlines defaults to the values documented there.
	Deadlines Deadlines
	// Metrics may be nil.
	Metrics *Metrics
	// Logger may be nil for no log.
	Logger *slog.Logger
	// OnChange is called when the connection to the driver is lost (err says why) and
	// when it is back and its Info was read again (err is nil). It is not called
	// concurrently, nor after Close returned, nor for the connection over which Dial read Info.
	// It must not call Close. It may be nil.
	OnChange func(i Info, err error)

	redial time.Duration // the shortest pause between attempts to connect; 0 means redialMin
}

// Driver is a client of one CSI driver over one long-lived connection.
type Driver struct {
	name      state.DriverName
	endpoint  string
	conn      *grpc.ClientConn
	identity  csi.IdentityClient
	node      csi.NodeClient
	sock      *socket
	dirs      *dirs
	secrets   SecretReader
	tokens    TokenSource
	deadlines Deadlines
	nodeOnly  bool
	tls       credentials.TransportCredentials
	metrics   *Metrics
	log       *slog.Logger
	onChange  func(Info, error)
	// controllerOnly is Config.ControllerOnly; dirs is nil then.
	controllerOnly bool

	oversize sync.Once // see warnOversize

	info   atomic.Pointer[Info]
	cancel context.CancelFunc
	done   sync.WaitGroup
	// events watches the socket's directory; nil if the kernel has no watch left.
	events *fsnotify.Watcher
}

// Dial connects to a driver and reads its Info. It does not wait for a listener on
// the socket. The error wraps ErrName or a [state.CallError].
func Dial(ctx context.Context, c Config) (*Driver, error) {
	if c.ControllerOnly {
		return dialController(ctx, c)
	}
	path, err := unixsocket.EndpointPath(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("driver %s: %w", c.Name, err)
	}
	dirs, err := openDirs(c.Root)
	if err != nil {
		return nil, fmt.Errorf("driver %s: open root directory: %w", c.Name, err)
	}
	d := newDriver(c)
	d.endpoint, d.sock, d.dirs = path, &socket{path: path, peers: c.Peers}, dirs
	if err := d.checkPeer(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("driver %s: %w", c.Name, err), dirs.close())
	}
	if err := d.connect(cmpOr(c.redial, redialMin)); err != nil {
		return nil, errors.Join(fmt.Errorf("driver %s: %w", c.Name, err), dirs.close())
	}
	info, err := d.readInfo(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("driver %s: %w", c.Name, err), d.conn.Close(), dirs.close())
	}
	d.info.Store(&info)
	// If the connection broke meanwhile, watch reads Info again.
	d.sock.setKnown(1)
	d.live(ctx)
	return d, nil
}

// newDriver returns the Driver of c without a connection.
func newDriver(c Config) *Driver {
	d := &Driver{
		name:      c.Name,
		secrets:   c.Secrets,
		tokens:    c.Tokens,
		deadlines: c.Deadlines.withDefaults(),
		nodeOnly:  c.NodeOnly,
		tls:       c.TLS,
		metrics:   c.Metrics,
		log:       c.Logger,
		onChange:  c.OnChange,

		controllerOnly: c.ControllerOnly,
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.log = d.log.With("driver", string(c.Name))
	if d.onChange == nil {
		d.onChange = func(Info, error) {}
	}
	return d
}

// live starts to follow the connection. The driver outlives ctx: Close ends it.
func (d *Driver) live(ctx context.Context) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.cancel = cancel
	if !d.sock.remote() {
		d.followSocket(life)
	}
	d.done.Go(func() { d.watch(life) })
}

// followSocket watches the socket's directory, if the kernel has a watch left.
func (d *Driver) followSocket(life context.Context) {
	var err error
	if d.events, err = fsnotify.NewWatcher(); err != nil {
		d.log.Warn("cannot watch the driver's socket", "err", err)
		return
	}
	d.addWatch()
	d.done.Go(func() { d.watchSocket(life) })
}

// checkPeer returns an error if a user that is not allowed listens on the endpoint.
// socket.dial checks each connection, but gRPC reports its error as Unavailable; this
// check returns one that says what to do.
func (d *Driver) checkPeer(ctx context.Context) error {
	conn, err := unixsocket.DialTrusted(ctx, d.endpoint, d.sock.peers...)
	if err == nil {
		return conn.Close()
	}
	return d.foreignPeer(err) // the first call reports any other fault
}

// foreignPeer returns an error that says what to do if err is about a user that is not
// allowed, else nil.
func (d *Driver) foreignPeer(err error) error {
	if e, other := errors.AsType[*unixsocket.PeerError](err); other {
		return fmt.Errorf("endpoint %s: %w, and the driver is given secrets: it must be root's, or --driver-uid=%s=%d "+
			"allows that user", d.endpoint, err, d.name, e.UID)
	}
	return nil
}

// connect makes the client. The target's scheme makes the authority
// "localhost", which servers check. There is no keepalive, because servers by
// default punish it and the end of a local socket shows at once; no idle
// timeout, so that the state of the connection shows whether the driver runs; and
// no retry by gRPC, because the caller must see each failure.
func (d *Driver) connect(redial time.Duration) (err error) {
	target, creds, longest := "unix://"+d.endpoint, insecure.NewCredentials(), redialMax
	if d.sock.remote() {
		target, creds, longest = "passthrough:///"+d.sock.address, handshaker{d.tls, d.sock}, redialMaxRemote
	}
	d.conn, err = grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(d.sock.dial),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: redial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: max(redial, longest)},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithPerRPCCredentials(gate{d}),
		grpc.WithStatsHandler(answers{}),
		grpc.WithUnaryInterceptor(d.observe()),
		grpc.WithStreamInterceptor(d.observeStream()),
	)
	if err != nil {
		return err
	}
	d.identity = csi.NewIdentityClient(d.conn)
	d.node = csi.NewNodeClient(d.conn)
	return nil
}

// Info returns the abilities that the driver reported when the current or the last
// connection began. The caller must not modify its map and slice.
func (d *Driver) Info() Info { return *d.info.Load() }

// Conn returns the connection, for services that this package does not call. Calls
// over it are logged and measured like the Driver's own. They get a deadline unless
// their answer is a stream.
func (d *Driver) Conn() grpc.ClientConnInterface { return d.conn }

// Close ends the connection and waits until a running OnChange returns. Calls in
// flight fail.
func (d *Driver) Close() error {
	d.cancel()
	err := d.conn.Close()
	d.done.Wait()
	if d.dirs == nil {
		return err
	}
	return errors.Join(err, d.dirs.close())
}
