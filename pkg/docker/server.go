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

	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

const (
	// maxHeader bounds a request's line and headers (bytes).
	maxHeader = 32 << 10
	// headerTimeout is how long a client may take to send its headers.
	headerTimeout = 10 * time.Second
	// writeTimeout is how long a client may leave an answer unread.
	writeTimeout = 30 * time.Second
	// stopTimeout is how long a stop waits for requests that are under way.
	stopTimeout = 5 * time.Second
)

// Config says what a [Server] serves. All fields are needed but where noted.
type Config struct {
	// Socket is the path of the unix socket, at most 107 bytes. Its directory is made,
	// 0700, where it is missing. dockerd looks for /run/docker/plugins/NAME.sock.
	Socket string
	// Passed is the socket at that path where systemd listens on it; nil: the server
	// makes it. New closes it.
	Passed  *os.File
	Volumes Volumes
	// Explain returns the chain that explain has of a claim ("namespace/name"), a line each; it
	// asks no process and no driver. Nil: volumes are shown without it.
	Explain func(ctx context.Context, claim string) []string
	Logger  *slog.Logger
}

// Server serves the volume plugin protocol.
type Server struct {
	cfg      Config
	listener *unixsocket.Listener
	stopping chan struct{} // closed when Run begins to stop
	patience time.Duration // stopTimeout
}

// New takes the socket; a second daemon fails here. [Server.Run] or [Server.Close]
// gives it back.
func New(ctx context.Context, cfg Config) (*Server, error) {
	l, err := unixsocket.Listen(ctx, cfg.Socket, cfg.Passed)
	if err != nil {
		return nil, fmt.Errorf("volume plugin: %w", err)
	}
	return &Server{cfg: cfg, listener: l, stopping: make(chan struct{}), patience: stopTimeout}, nil
}

// Run serves until ctx ends. Then requests under way get [stopTimeout]; those that are
// held back, and those that have no answer by then, get none, and their client
// asks the next daemon. Run returns nil after such a stop.
func (s *Server) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx) // a request under way outlives the signal to stop
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
		_ = srv.Close() // whatever it says, no client is served any more
	} else if e != nil {
		err = errors.Join(err, fmt.Errorf("stop the volume plugin: %w", e))
	}
	return errors.Join(err, s.listener.Close())
}
