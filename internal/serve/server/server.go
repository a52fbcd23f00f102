package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// MaxManifest bounds a manifest (bytes). A Secret or ConfigMap may hold 1 MiB,
	// which base64 and metadata enlarge, and a file may hold several objects.
	MaxManifest = 4 << 20
	// maxHeader bounds a request's line and headers (bytes). A volume id may have 4
	// KiB.
	maxHeader = 32 << 10
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// writeTimeout is how long a client may leave one write unread.
	writeTimeout = 30 * time.Second
	// stopTimeout bounds how long Run waits, when it stops, for requests that are in
	// flight or about to arrive.
	stopTimeout = 5 * time.Second
	// askTimeout bounds how long a stopping server waits for the first request on a
	// connection that it has just accepted. The command line sends its request at once.
	askTimeout = time.Second
	// MaxWait bounds a wait request, so that a forgotten one ends.
	MaxWait = 24 * time.Hour
	// startPatience bounds how long after New a watch of pods waits for Config.Started.
	startPatience = 2 * time.Second
	// watchPause is the minimum time between two reads of the state for one watch: a
	// node with thousands of changing volumes is listed at most ten times a second.
	watchPause = 100 * time.Millisecond
)

// Config says what a [Server] serves. All fields are required unless noted.
type Config struct {
	// Socket is the path of the unix socket, at most 107 bytes. New creates its
	// directory with mode 0700 if it is missing.
	Socket string
	// Passed is the already listening socket at that path if a service manager passed
	// one (systemd's socket activation); if nil, New creates the socket. New closes
	// Passed.
	Passed *os.File
	// Readers is the id of a group whose members may send read-only requests on the
	// socket; 0 means no such group.
	Readers uint32
	// Profiles serves net/http/pprof on the socket, to root and the daemon's user.
	Profiles bool
	// HTTPAddress is where metrics and health are served; "" disables both.
	HTTPAddress string
	// Page also serves the status page at HTTPAddress. The socket always serves it.
	Page bool

	Volumes Volumes
	// FollowPods returns a new feed of pod changes.
	FollowPods func() PodFeed
	// Started is closed when the manager shows every pod that the sources had at
	// startup; nil means that it already does.
	Started <-chan struct{}
	// Settle waits until the manager shows the journal's records and every change that it
	// was told of; nil means that it already does.
	Settle func(ctx context.Context) error
	// Verify returns nil if the pod's volumes are still mounted as they were made and
	// their storage answers; nil if the daemon cannot check this.
	Verify  func(ctx context.Context, uid state.PodUID) error
	Objects Objects
	Claims  Claims
	Health  Health
	Trace   Trace
	// Containers returns the mounts of containers; if nil, requests for them fail with
	// ErrNotFound.
	Containers Containers
	// Catalog lists the sources' objects of a kind; nil lists none.
	Catalog func(kind string) []Object
	// Ends returns the words that end a pod's use of its volumes, if csi-volmgr delete pod
	// does not; nil knows of no such pod.
	Ends func(namespace, pod string) string
	// Lacks returns the programs that a built-in kind requires and that are missing on
	// the node; if nil, the server does not check.
	Lacks func(kind state.DriverName) []string
	// Controller returns the state of a driver's Controller service; nil if it has none that
	// is known.
	Controller func(driver state.DriverName) *ControllerStatus
	// Unreached says why mounts made by the process behind a driver's endpoint do not
	// appear on this node; "" if they do, or if that cannot be determined. The server
	// calls it for drivers that answered OK without an effect; if nil, it does not
	// check.
	Unreached func(ctx context.Context, endpoint string) string
	// Stats may be nil; then the server does not know how full volumes are.
	Stats Stats
	// Operator, Drainer and Registrar serve operators' requests. The server has no
	// paths for one that is nil.
	Operator Operator
	// Named serves the volumes that programs outside Kubernetes name; may be nil.
	Named Named
	// Schedules takes snapshots on a schedule; may be nil.
	Schedules Schedules
	Drainer   Drainer
	Registrar Registrar
	// Storage lists drivers' storage and reads the blocks of snapshots; nil if a
	// cluster provisions the volumes.
	Storage Storage
	// Note records in the audit log which objects a client applied, withdrew or
	// deleted, and the outcome; nil if there is no audit log.
	Note func(a audit.Act, result string, err error)

	// Metrics is served at /metrics; nil disables that path.
	Metrics prometheus.Gatherer
	Version Version
	Logger  *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server serves the node API.
type Server struct {
	cfg      Config
	api      *unixsocket.Listener
	http     net.Listener // nil if HTTPAddress is ""
	stopping chan struct{}
	patience time.Duration // stopTimeout
	made     time.Time
	streams  streams
	pods     podList // shared by all wait requests
}

// New claims the socket and the HTTP address, so that a second daemon fails here,
// before it has touched anything. [Server.Run] or [Server.Close] releases them.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{
		cfg: cfg, stopping: make(chan struct{}), patience: stopTimeout, made: time.Now(),
		pods: podList{follow: cfg.FollowPods},
	}
	api, err := unixsocket.Listen(ctx, cfg.Socket, cfg.Passed)
	if err != nil {
		return nil, err
	}
	s.api = api
	if cfg.Readers != 0 {
		if err := openTo(cfg.Socket, cfg.Readers); err != nil {
			return nil, errors.Join(fmt.Errorf("let group %d read on %s: %w", cfg.Readers, cfg.Socket, err), api.Close())
		}
	}
	if cfg.HTTPAddress == "" {
		return s, nil
	}
	var lc net.ListenConfig
	if s.http, err = lc.Listen(ctx, "tcp", cfg.HTTPAddress); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for metrics and health at %s: %w", cfg.HTTPAddress, err), api.Close())
	}
	return s, nil
}

// HTTPAddress returns the address at which metrics and health are served, with the port
// that the kernel chose if the configured port is 0; "" if they are not served.
func (s *Server) HTTPAddress() string {
	if s.http == nil {
		return ""
	}
	return s.http.Addr().String()
}

// Close releases what New claimed. It is for a server that is never run.
func (s *Server) Close() error {
	err := s.api.Close()
	if s.http != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

// Run serves until ctx ends. Then it ends streams, gives [stopTimeout] to requests that
// are in flight or about to arrive on connections that were just accepted, and removes
// the socket. It logs the requests that are still unanswered after that and returns
// nil.
func (s *Server) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // a request in flight outlives the signal to stop
	open := newConnections(s.cfg.Now)
	api := s.httpServer(base, s.apiHandler(), open)
	api.ConnContext = withPeer
	readers := &connLimiter{most: maxConnections, exempt: func(c net.Conn) bool { return credentials(c).owner() }}
	readers.limit(api)
	servers := map[*http.Server]net.Listener{api: s.api}
	if s.http != nil {
		health := s.httpServer(base, s.healthHandler(), open)
		(&connLimiter{most: maxConnections}).limit(health)
		servers[health] = s.http
	}
	ended := make(chan error, len(servers))
	for srv, l := range servers {
		go func() { ended <- srv.Serve(l) }()
	}
	running := len(servers)
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		err = fmt.Errorf("serve the node API: %w", err)
		running--
	}
	close(s.stopping)
	s.stopAccepting()
	for range running {
		<-ended // from here on, every accepted connection is in open
	}
	stop, cancel := context.WithTimeout(base, s.patience)
	defer cancel()
	for srv := range servers {
		srv.SetKeepAlivesEnabled(false)
	}
	// Shutdown alone would close connections whose request it has not read yet, and
	// wait for connections that send none.
	open.waitIdle(stop)
	for srv := range servers {
		if e := srv.Shutdown(stop); e != nil {
			s.cfg.Logger.Warn("requests still in flight get no answer", "waited", s.patience, "err", e)
			_ = srv.Close() // an error changes nothing: all connections are closed
		}
	}
	return err
}

// stopAccepting closes the listeners. If systemd owns the socket, clients that are not
// accepted wait there for the next daemon.
func (s *Server) stopAccepting() {
	_ = s.api.UnixListener.Close() // after a failure of Serve it is closed already
	if s.http != nil {
		_ = s.http.Close()
	}
}

func (s *Server) httpServer(base context.Context, h http.Handler, open *connections) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       writeTimeout,
		WriteTimeout:      writeTimeout, // an answer that takes longer sets a later time for each write
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnState:         open.note,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
}
