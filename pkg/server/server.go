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

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

const (
	// MaxManifest bounds a manifest (bytes): a Secret or ConfigMap may hold 1 MiB,
	// which base64 and company make larger, and a file may hold several.
	MaxManifest = 4 << 20
	// maxHeader bounds a request's line and headers (bytes); a volume id may be 4 KiB.
	maxHeader = 32 << 10
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// writeTimeout is how long a client may leave one write unread.
	writeTimeout = 30 * time.Second
	// stopTimeout is how long a stop waits for requests, under way or to come.
	stopTimeout = 5 * time.Second
	// askTimeout is how long after it was accepted a connection on which no request
	// has come is waited for at a stop: a verb asks at once.
	askTimeout = time.Second
	// maxWait bounds a wait, so that one forgotten does not stay for ever.
	maxWait = 24 * time.Hour
	// startPatience bounds how long after New a watch of pods waits for Started.
	startPatience = 2 * time.Second
	// watchPause is the least time between two looks of one watch: a node with
	// thousands of volumes in motion is then listed ten times a second at most.
	watchPause = 100 * time.Millisecond
)

// Config says what a [Server] serves. All fields are needed but where noted.
type Config struct {
	// Socket is the path of the unix socket, at most 107 bytes. Its directory
	// is made, 0700, where it is missing.
	Socket string
	// Passed is the socket at that path where a service manager listens on it
	// (systemd's socket activation); nil: the server makes it. New closes it.
	Passed *os.File
	// Readers is the id of a group whose members may read on the socket, and
	// change nothing; 0 is none.
	Readers uint32
	// Profiles serves net/http/pprof on the socket, to root and the daemon's user.
	Profiles bool
	// HTTPAddress is where metrics and health are served; "" means nowhere.
	HTTPAddress string
	// Page serves the status page there, too. On the socket it always is.
	Page bool

	Volumes Volumes
	// FollowPods returns a feed of the changes of pods; each call begins another.
	FollowPods func() PodFeed
	// Started is closed when the manager shows every pod that the sources had at the
	// start; nil where it does from the beginning.
	Started <-chan struct{}
	// Verify returns nil if the pod's volumes are mounted as they were made and
	// their storage answers, now; nil where that cannot be asked.
	Verify  func(ctx context.Context, uid state.PodUID) error
	Objects Objects
	Claims  Claims
	Health  Health
	Trace   Trace
	// Containers is asked for the mounts of containers; nil answers notFound.
	Containers Containers
	// Catalog lists the objects of a kind that the sources have; nil means none.
	Catalog func(kind string) []Object
	// Lacks returns the programs that a built-in kind cannot do without and that the
	// node does not have; nil means that none is looked for.
	Lacks func(kind state.DriverName) []string
	// Unreached says why what the process behind a driver's endpoint mounts does not
	// appear on this node; "" where it does, or where that cannot be told. It is asked
	// of drivers that answered OK without an effect; nil means that none is looked at.
	Unreached func(ctx context.Context, endpoint string) string
	// Stats may be nil; then nothing is known of how full volumes are.
	Stats Stats
	// Operator, Drainer and Registrar serve the verbs of an operator; nil serves none.
	Operator Operator
	// Named serves the volumes that programs outside Kubernetes name; nil serves none.
	Named Named
	// Schedules makes snapshots at set moments; nil serves none.
	Schedules Schedules
	Drainer   Drainer
	Registrar Registrar
	// Storage asks drivers what they have, and for the blocks of snapshots; nil where a cluster makes
	// volumes.
	Storage Storage
	// Note writes to the audit log which objects a client applied, withdrew or deleted,
	// and how that ended; nil where there is no audit log.
	Note func(a audit.Act, result string, err error)

	// Metrics is served at /metrics; nil serves none.
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
	http     net.Listener // nil where HTTPAddress is ""
	stopping chan struct{}
	patience time.Duration // stopTimeout
	made     time.Time
	streams  streams
	pods     podList // for those who wait
}

// New takes the socket and the HTTP address, so that a second daemon fails
// here, before it has touched anything. [Server.Run] or [Server.Close] gives
// them back.
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

// HTTPAddress is where metrics and health are served, with the port chosen
// where none was asked for; "" where nowhere.
func (s *Server) HTTPAddress() string {
	if s.http == nil {
		return ""
	}
	return s.http.Addr().String()
}

// Close gives up what New took. It is for a server that is never run.
func (s *Server) Close() error {
	err := s.api.Close()
	if s.http != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

// Run serves until ctx ends; then streams are ended, requests under way or on
// connections that were just accepted get [stopTimeout], and the socket is
// removed. Who has no answer by then gets none, which is logged and no error: Run
// returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // a request under way outlives the signal to stop
	open := newConnections(s.cfg.Now)
	api := s.httpServer(base, s.apiHandler(), open)
	api.ConnContext = withPeer
	servers := map[*http.Server]net.Listener{api: s.api}
	if s.http != nil {
		few := &crowd{most: maxCrowd}
		health := s.httpServer(base, s.healthHandler(), open)
		health.ConnState = func(c net.Conn, state http.ConnState) {
			open.note(c, state)
			few.note(c, state)
		}
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
	s.acceptNobody()
	for range running {
		<-ended // each accepted connection is known then
	}
	stop, cancel := context.WithTimeout(base, s.patience)
	defer cancel()
	for srv := range servers {
		srv.SetKeepAlivesEnabled(false)
	}
	// Shutdown by itself closes those whose request it has not read yet, and waits
	// for those who send none.
	open.answer(stop)
	for srv := range servers {
		if e := srv.Shutdown(stop); e != nil {
			s.cfg.Logger.Warn("requests still in flight get no answer", "waited", s.patience, "err", e)
			_ = srv.Close() // whatever it says, no client is served any more
		}
	}
	return err
}

// acceptNobody ends the listening. Who is not accepted waits for the next daemon,
// where systemd has the socket.
func (s *Server) acceptNobody() {
	_ = s.api.UnixListener.Close() // a failure has closed it, too
	if s.http != nil {
		_ = s.http.Close()
	}
}

func (s *Server) httpServer(base context.Context, h http.Handler, open *connections) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       writeTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnState:         open.note,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
}
