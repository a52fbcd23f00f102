package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
)

const (
	// maxHeader bounds a request's line and headers (bytes).
	maxHeader = 32 << 10
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// writeTimeout is how long a client may leave an answer unread.
	writeTimeout = 30 * time.Second
	// stopTimeout is how long a stopping server waits for requests in flight.
	stopTimeout = 5 * time.Second
)

// Config says what a [Server] serves. All fields are required unless noted.
type Config struct {
	// Socket is the path of the unix socket, at most 107 bytes. New creates its
	// directory with mode 0700 if it is missing. dockerd looks for
	// /run/docker/plugins/NAME.sock.
	Socket string
	// Passed is the already listening socket at that path if systemd passed one; if
	// nil, New creates the socket. New closes Passed.
	Passed  *os.File
	Volumes Volumes
	// Explain returns the explanation of a claim ("namespace/name") in lines, without
	// asking a process or driver. If nil, volumes are shown without it.
	Explain func(ctx context.Context, claim string) []string
	// Note records the creations and removals in the audit log; it may be nil.
	Note   func(act audit.Act, result string, err error)
	Logger *slog.Logger
}

// Server serves the volume plugin protocol.
type Server struct {
	cfg      Config
	listener *unixsocket.Listener
	stopping chan struct{} // closed when Run begins to stop
	patience time.Duration // stopTimeout
}

// New claims the socket; a second daemon fails here. [Server.Run] or [Server.Close]
// releases it.
func New(ctx context.Context, cfg Config) (*Server, error) {
	l, err := unixsocket.Listen(ctx, cfg.Socket, cfg.Passed)
	if err != nil {
		return nil, fmt.Errorf("volume plugin: %w", err)
	}
	return &Server{cfg: cfg, listener: l, stopping: make(chan struct{}), patience: stopTimeout}, nil
}

// Run serves until ctx ends. Then requests in flight get [stopTimeout]. Requests that
// are held back or still unanswered after it get no answer, and their client asks the
// next daemon. Run returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // a request in flight outlives the signal to stop
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       withPeer,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(s.listener) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		err = fmt.Errorf("serve the volume plugin: %w", err)
	}
	close(s.stopping)
	stop, cancel := context.WithTimeout(base, s.patience)
	defer cancel()
	if e := srv.Shutdown(stop); errors.Is(e, context.DeadlineExceeded) {
		s.cfg.Logger.Warn("requests to the volume plugin still in flight get no answer", "waited", s.patience)
		_ = srv.Close() // an error changes nothing: all connections are closed
	} else if e != nil {
		err = errors.Join(err, fmt.Errorf("stop the volume plugin: %w", e))
	}
	return errors.Join(err, s.listener.Close())
}
