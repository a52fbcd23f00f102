package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// bodyTimeout is how long a client may take to send a request's body.
const bodyTimeout = 10 * time.Second

// handler serves the protocol's paths.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /Plugin.Activate", serve(s, func(context.Context, noRequest) (any, error) {
		return activation{Implements: []string{"VolumeDriver"}}, nil
	}, nil))
	mux.HandleFunc("POST /VolumeDriver.Capabilities", serve(s, func(context.Context, noRequest) (any, error) {
		return abilities{scope{"local"}}, nil // with global, Swarm would expect each volume on every node
	}, nil))
	mux.HandleFunc("POST /VolumeDriver.Create", serve(s, s.create, nil))
	mux.HandleFunc("POST /VolumeDriver.Get", repeated(serve(s, s.get, nil)))
	mux.HandleFunc("POST /VolumeDriver.Path", serve(s, s.path, nil))
	mux.HandleFunc("POST /VolumeDriver.List", serve(s, s.list, nil))
	mux.HandleFunc("POST /VolumeDriver.Remove", serve(s, s.remove, nil))
	mux.HandleFunc("POST /VolumeDriver.Mount", serve(s, s.mount, s.undoMount))
	mux.HandleFunc("POST /VolumeDriver.Unmount", serve(s, s.unmount, nil))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, fmt.Errorf("%s %s: the volume plugin has no such method", r.Method, r.URL.Path))
	})
	return mux
}

// repeated does not answer a request whose body is missing. dockerd repeats a request whose connection broke, and has
// sent its body away with the first attempt (callWithRetry of moby's pkg/plugins). To Get, any answer but the volume
// would say that there is none; without one, dockerd asks again, and at last fails and keeps the volume.
func repeated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			panic(http.ErrAbortHandler)
		}
		next(w, r)
	}
}

// serve answers one of the protocol's methods with the result of do. If do succeeded
// but the client is gone, serve calls lost, which may be nil.
func serve[In request](s *Server, do func(context.Context, In) (any, error), lost func(context.Context, In),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := allowed(r.Context()); err != nil {
			s.cfg.Logger.Warn("a client of the volume plugin is refused", "err", err)
			s.fail(w, r, err)
			return
		}
		var in In
		err := s.receive(w, r, &in)
		if err == nil {
			err = in.check()
		}
		var out any
		if err == nil {
			out, err = do(r.Context(), in)
		}
		s.cfg.Logger.Debug("volume plugin", "method", r.URL.Path[1:], "volume", in.volume(), "err", err)
		switch {
		case err == nil:
			if s.answer(w, http.StatusOK, out) != nil && lost != nil {
				lost(context.WithoutCancel(r.Context()), in)
			}
		case errors.Is(err, named.ErrNotFound) && !errors.Is(err, named.ErrUnknown):
			s.fail(w, r, fmt.Errorf("no such volume: %s", in.volume()))
		default:
			s.fail(w, r, err)
		}
	}
}

// fail answers with an error. While the server stops it does not answer: the error may
// come from the stop, and the next daemon answers better.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	select {
	case <-s.stopping:
		panic(http.ErrAbortHandler)
	default:
	}
	if s.answer(w, http.StatusInternalServerError, failure{err.Error()}) != nil {
		s.cfg.Logger.Debug("answer of the volume plugin could not be sent", "method", r.URL.Path[1:], "err", err)
	}
}

// known returns err, except that for [named.ErrUnknown] it sends no answer: dockerd and
// podman take any answer as "the volume does not exist". It waits until the client
// closes its connection or the server stops, and then aborts the request.
func (s *Server) known(ctx context.Context, err error) error {
	if !errors.Is(err, named.ErrUnknown) {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.stopping:
	}
	panic(http.ErrAbortHandler)
}

// receive reads a request within bodyTimeout. It then lifts the deadline, since the
// server keeps reading to notice when the client closes the connection.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, in any) error {
	conn := http.NewResponseController(w)
	if err := conn.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return fmt.Errorf("limit the time of a request: %w", err)
	}
	if err := decode(w, r, in); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift the limit of a request's time: %w", err)
	}
	return nil
}

// answer sends out. An error means that the client did not get it.
func (s *Server) answer(w http.ResponseWriter, status int, out any) error {
	w.Header().Set("Content-Type", contentType)
	conn := http.NewResponseController(w)
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return err
	}
	return conn.Flush()
}

func (s *Server) create(ctx context.Context, in createRequest) (any, error) {
	err := s.cfg.Volumes.Create(ctx, named.Request{Name: in.Name, FrontEnd: named.Docker, Options: in.Opts})
	s.note(ctx, "create volume", in.Name, "", err)
	return done{}, err
}

// note records in the audit log what a client of the plugin asked for.
func (s *Server) note(ctx context.Context, verb, volume, result string, err error) {
	if s.cfg.Note == nil {
		return
	}
	p := peerOf(ctx)
	s.cfg.Note(audit.Act{
		By: audit.Peer(p.uid, p.pid), Verb: verb, Object: volume, Detail: server.FrontEndDetail(named.Docker),
	}, result, err)
}

func (s *Server) get(ctx context.Context, in nameRequest) (any, error) {
	v, err := s.cfg.Volumes.Get(ctx, in.Name)
	if err := s.known(ctx, err); err != nil {
		return nil, err
	}
	shown, err := toShown(v)
	if err == nil && s.cfg.Explain != nil {
		shown.Status["explain"] = s.cfg.Explain(ctx, v.Claim)
	}
	return found{shown}, err
}

func (s *Server) path(ctx context.Context, in nameRequest) (any, error) {
	v, err := s.cfg.Volumes.Get(ctx, in.Name)
	return mountpoint{v.Mountpoint}, s.known(ctx, err)
}

func (s *Server) list(ctx context.Context, _ noRequest) (any, error) {
	views, err := s.cfg.Volumes.List(ctx)
	out := listed{Volumes: make([]shown, 0, len(views))}
	for _, v := range views {
		if v.Creating { // dockerd would wait for its own request of it before it lists anything
			continue
		}
		out.Volumes = append(out.Volumes, shown{Name: v.Name, Mountpoint: v.Mountpoint})
	}
	return out, s.known(ctx, err)
}

// remove succeeds for a missing volume: the request may be a repetition after a lost
// answer.
func (s *Server) remove(ctx context.Context, in nameRequest) (any, error) {
	p := peerOf(ctx)
	note, err := s.cfg.Volumes.Remove(ctx, p.uid, p.pid, in.Name)
	if errors.Is(err, named.ErrNotFound) && !errors.Is(err, named.ErrUnknown) {
		return done{}, nil
	}
	s.note(ctx, "remove volume", in.Name, note, err)
	return done{}, err
}

func (s *Server) mount(ctx context.Context, in mountRequest) (any, error) {
	path, err := s.cfg.Volumes.Mount(ctx, in.Name, in.ID, peerOf(ctx).pid)
	return mountpoint{path}, err
}

// undoMount undoes a Mount whose answer did not reach the client.
func (s *Server) undoMount(ctx context.Context, in mountRequest) {
	if err := s.cfg.Volumes.Unmount(ctx, in.Name, in.ID); err != nil {
		s.cfg.Logger.Warn("a mount whose client is gone cannot be undone", "volume", in.Name, "id", in.ID, "err", err)
	}
}

func (s *Server) unmount(ctx context.Context, in mountRequest) (any, error) {
	return done{}, s.cfg.Volumes.Unmount(ctx, in.Name, in.ID)
}

// peerKey is the context key of a peer.
type peerKey struct{}

// peer is the process at the other end of a connection. refused is why it may not use
// the plugin; nil if it may.
type peer struct {
	refused error
	uid     uint32
	pid     int32
}

// withPeer adds the other end of a connection, identified by the kernel, to the
// connection's context. Only root may use the plugin.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var p peer
	cred, err := unixsocket.Peer(c)
	switch {
	case err != nil:
		p.refused = fmt.Errorf("cannot tell who is calling: %w", err)
	case cred.Uid != 0:
		p.refused = fmt.Errorf("user %d may not use the volume plugin, only root may", cred.Uid)
	default:
		p.uid, p.pid = cred.Uid, cred.Pid
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// peerOf returns the connection's other end; without credentials it may not use the plugin.
func peerOf(ctx context.Context) peer {
	p, ok := ctx.Value(peerKey{}).(peer)
	if !ok {
		p.refused = errors.New("the connection says nothing of who is calling")
	}
	return p
}

// allowed returns why the connection's other end may not use the plugin; nil if it may.
func allowed(ctx context.Context) error { return peerOf(ctx).refused }
