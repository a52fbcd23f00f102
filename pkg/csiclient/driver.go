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
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

// How long a call may take. CSI leaves it to the caller ("Timeouts").
const (
	// defaultTimeout is the kubelet's for every CSI call, so what vendors test with.
	defaultTimeout = 2 * time.Minute
	// defaultInfoTimeout bounds all calls together by which a driver is asked
	// what it is. They do no work; but a driver may ask a cloud for its node id.
	defaultInfoTimeout = 30 * time.Second
	// defaultStatsTimeout: a statfs on storage that answers takes milliseconds,
	// and numbers later than this help no reader.
	defaultStatsTimeout = 10 * time.Second

	// redialMin and redialMax pace attempts to reach a socket without a listener.
	// gRPC's own maximum of two minutes would make a driver's return wait.
	redialMin = 50 * time.Millisecond
	redialMax = time.Second
	// connectTimeout is for a connect(2) on a local socket whose backlog is full.
	connectTimeout = 10 * time.Second
	// askAgainMin and askAgainMax pace questions to a driver that came back and
	// cannot say yet what it is.
	askAgainMin = 200 * time.Millisecond
	askAgainMax = 10 * time.Second
)

// Deadlines bounds each call. A zero field stands for its default.
type Deadlines struct {
	// Stage, Publish, Unpublish, Unstage and Expand default to 2 minutes.
	Stage, Publish, Unpublish, Unstage, Expand time.Duration
	// Stats defaults to 10 seconds.
	Stats time.Duration
	// Info is for all that is asked of a driver once a connection; 30 seconds.
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

// SecretReader reads secrets when a call needs them. They are never kept.
type SecretReader interface {
	Secret(ctx context.Context, ref state.SecretRef) (map[string]string, error)
}

// Config says which driver to speak to, and how.
type Config struct {
	// Name is the registered name; the driver must call itself the same.
	Name state.DriverName
	// Endpoint is the driver's socket: an absolute path or unix:///path.
	Endpoint string
	// Peers are users, beside root and that of this process, whose processes may be the
	// driver: it is given secrets, and says what the node mounts.
	Peers []uint32
	// Root is the node's root directory. Directories are made and removed
	// beneath it and nowhere else.
	Root string
	// Secrets may be nil if no volume refers to one.
	Secrets SecretReader
	// Tokens may be nil; then volumes whose driver wants service account tokens
	// are not published.
	Tokens TokenSource
	// NodeOnly: the driver's Controller service is not asked what it can do, and Info says of it only
	// whether the plugin has one. In a cluster its sidecars call it, at another endpoint perhaps.
	NodeOnly bool
	// Deadlines' zero value stands for the defaults.
	Deadlines Deadlines
	// Metrics may be nil.
	Metrics *Metrics
	// Logger may be nil for no log.
	Logger *slog.Logger
	// OnChange is called when the driver's process went away (err says why) and
	// when it is back and was asked anew what it can do (err is nil). Calls are
	// made one after another, none after Close returned, and none for the
	// connection that Dial made. It must not call Close. It may be nil.
	OnChange func(i Info, err error)

	redial time.Duration // the least pause between attempts to connect; 0 is redialMin
}

// Driver is one CSI driver, by one long-lived connection to it.
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
	metrics   *Metrics
	log       *slog.Logger
	onChange  func(Info, error)

	info   atomic.Pointer[Info]
	cancel context.CancelFunc
	done   sync.WaitGroup
	// events tells of what happens where the socket is; nil where the kernel
	// has no watch left.
	events *fsnotify.Watcher
}

// Dial connects to a driver and asks it who it is and what it can do. It does
// not wait for a socket without a listener. The error wraps ErrName,
// ErrNotReady, or a [state.CallError].
func Dial(ctx context.Context, c Config) (*Driver, error) {
	path, err := unixsocket.EndpointPath(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("driver %s: %w", c.Name, err)
	}
	dirs, err := openDirs(c.Root)
	if err != nil {
		return nil, fmt.Errorf("driver %s: open root directory: %w", c.Name, err)
	}
	d := &Driver{
		name:      c.Name,
		endpoint:  path,
		sock:      &socket{path: path, peers: c.Peers},
		dirs:      dirs,
		secrets:   c.Secrets,
		tokens:    c.Tokens,
		deadlines: c.Deadlines.withDefaults(),
		nodeOnly:  c.NodeOnly,
		metrics:   c.Metrics,
		log:       c.Logger,
		onChange:  c.OnChange,
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.log = d.log.With("driver", string(c.Name))
	if d.onChange == nil {
		d.onChange = func(Info, error) {}
	}
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
	// Where the connection broke while Dial asked, watch asks again.
	d.sock.setKnown(1)
	// The life of the driver is not the call's: it ends with Close.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.cancel = cancel
	if d.events, err = fsnotify.NewWatcher(); err != nil {
		d.log.Warn("cannot watch the driver's socket", "err", err)
	} else {
		d.addWatch()
		d.done.Go(func() { d.watchSocket(life) })
	}
	d.done.Go(func() { d.watch(life) })
	return d, nil
}

// checkPeer returns the error of an endpoint on which another user listens. Each
// connection is checked (socket.dial); here for an error that says so, since gRPC hides
// it behind the code Unavailable.
func (d *Driver) checkPeer(ctx context.Context) error {
	conn, err := unixsocket.DialTrusted(ctx, d.endpoint, d.sock.peers...)
	if err == nil {
		return conn.Close()
	}
	if e, other := errors.AsType[*unixsocket.PeerError](err); other {
		return fmt.Errorf("endpoint %s: %w, and the driver is given secrets: it must be root's, or --driver-uid=%s=%d "+
			"allows that user", d.endpoint, err, d.name, e.UID)
	}
	return nil // what else is wrong the first call says
}

// connect makes the client. The target's scheme makes the authority
// "localhost", which servers check. There is no keepalive, for servers by
// default punish it, and the end of a local socket shows at once; no idle
// timeout, so the connection tells whether the driver lives; and no retries by
// gRPC, for each failure is the caller's to see.
func (d *Driver) connect(redial time.Duration) (err error) {
	d.conn, err = grpc.NewClient("unix://"+d.endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(d.sock.dial),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: redial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: max(redial, redialMax)},
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

// Info returns what the driver said of itself when the present or the last
// connection began. Its map and slice must not be changed.
func (d *Driver) Info() Info { return *d.info.Load() }

// Conn is the connection, for the services that this package does not speak.
// Calls over it are logged and measured as its own are, and bounded but for those whose answer is
// a stream.
func (d *Driver) Conn() grpc.ClientConnInterface { return d.conn }

// Close ends the connection and waits for OnChange to return if it runs.
// Calls in flight fail.
func (d *Driver) Close() error {
	d.cancel()
	err := d.conn.Close()
	d.done.Wait()
	return errors.Join(err, d.dirs.close())
}
