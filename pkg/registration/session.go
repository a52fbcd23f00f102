package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/connectivity"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// The reasons why a driver goes down.
var (
	errRemoved  = errors.New("its registration socket was removed")
	errReplaced = errors.New("its registration socket was replaced")
	errEvicted  = errors.New("the process behind its registration socket is gone, and another socket has the name")
	errOutlived = errors.New("no process listens on the driver's socket, and another registration socket with its name " +
		"has a driver that runs")
	errStopped = errors.New("the watcher stops")
)

// session serves one generation of one socket, from its discovery until it is gone.
// Its goroutine is run; status and first are guarded by the watcher's mutex.
type session struct {
	w      *Watcher
	id     unixsocket.Identity
	path   string
	end    context.CancelCauseFunc // ends the session with a reason; does not wait
	after  <-chan struct{}         // closed when the path's previous session has ended; nil if none
	done   chan struct{}           // closed when this session has ended
	poked  chan struct{}           // capacity 1: something happened, retry now
	status SocketStatus
	first  bool // found by the first scan, and not answered yet
}

// tenure is the possession of a driver name by a session.
type tenure struct {
	path     string
	endpoint string
	ended    chan struct{} // closed when the name is free again
	evict    chan error    // capacity 1: why the holder must give up the name
}

// poke cuts a pause short.
func (s *session) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

func (s *session) run(ctx context.Context) {
	defer s.finish()
	if s.after != nil {
		<-s.after // its Down must come before our Up
	}
	pause := s.w.times.retry
	for ctx.Err() == nil {
		err := s.register(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errIgnored):
			if s.w.shared { // it is the kubelet's
				err = nil
			}
			s.set(Ignored, err)
			<-ctx.Done()
		case errors.Is(err, ErrRefused):
			s.set(Refused, err)
			s.sendRefusal(ctx, err)
			<-ctx.Done()
		default:
			s.set(Retrying, err)
			s.pause(ctx, pause)
			pause = min(2*pause, retryMax)
		}
	}
}

// register makes the handshake, brings the driver up, and waits until the driver must
// go down. It returns why registration failed or ended.
func (s *session) register(ctx context.Context) error {
	info, err := getInfo(ctx, s.path, s.w.times.info)
	if err != nil {
		return err
	}
	p, err := checkInfo(info, s.path)
	s.describe(p)
	if err != nil {
		return err
	}
	p.generation = s.status.generation
	t := s.claim(ctx, p)
	if t == nil {
		return context.Cause(ctx)
	}
	defer s.giveUp(p, t)
	s.set(Connecting, nil)
	if err := s.w.handler.Up(ctx, p); err != nil {
		s.watchEndpoint(p)
		return err
	}
	s.set(Up, nil)
	reason := s.stayUp(ctx, t)
	s.w.handler.Down(p, reason.Error())
	return reason
}

// stayUp notifies the registrar that the driver is registered, and returns why the
// driver must go down once it must. If the notification fails the driver stays up,
// because volumes do not depend on it: stayUp repeats it and shows that in the status.
func (s *session) stayUp(ctx context.Context, t *tenure) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	if s.w.shared {
		timer.Stop()
	}
	for pause := s.w.times.retry; ; pause = min(2*pause, retryMax) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case why := <-t.evict:
			return why
		case <-timer.C:
		}
		err := notify(ctx, s.path, &registerapi.RegistrationStatus{PluginRegistered: true})
		switch {
		case err == nil:
			s.set(Up, nil)
		case ctx.Err() == nil:
			s.set(Up, fmt.Errorf("up, but its registrar could not be notified: %w", err))
			timer.Reset(pause)
		}
	}
}

// sendRefusal sends a refusal, which makes a registrar exit. So it is used only for
// faults that no retry can end, and does nothing if a kubelet watches the directory too,
// which may have accepted the driver.
func (s *session) sendRefusal(ctx context.Context, why error) {
	if s.w.shared {
		return
	}
	err := notify(ctx, s.path, &registerapi.RegistrationStatus{Error: why.Error()})
	// A registrar exits before it answers, so an error is expected.
	s.w.log.Debug("refusal was sent", "socket", s.path, "err", err)
}

// claim waits until the session has the driver's name, or returns nil if ctx ends first.
// A holder loses the name if its process is dead, or if its driver is dead and ours is
// not: a registrar may outlive its driver.
func (s *session) claim(ctx context.Context, p Plugin) *tenure {
	for ctx.Err() == nil {
		t, mine := s.tryClaim(p)
		if mine {
			return t
		}
		s.set(Waiting, fmt.Errorf("driver name is registered by %s, whose process runs", t.path))
		why := s.waitDead(ctx, t, p.Endpoint)
		if why == nil {
			continue
		}
		select {
		case t.evict <- why:
		default:
		}
		select {
		case <-t.ended:
		case <-ctx.Done():
		}
	}
	return nil
}

// tryClaim takes the name if it is free, else it returns the holder's tenure.
func (s *session) tryClaim(p Plugin) (t *tenure, mine bool) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if t := s.w.names[p.Name]; t != nil {
		return t, false
	}
	t = &tenure{path: s.path, endpoint: p.Endpoint, ended: make(chan struct{}), evict: make(chan error, 1)}
	s.w.names[p.Name] = t
	return t, true
}

// giveUp releases the name.
func (s *session) giveUp(p Plugin, t *tenure) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	delete(s.w.names, p.Name)
	close(t.ended)
}

// waitDead waits until the holder of a name can no longer serve it, and returns why:
// no process listens on its registration socket, or none listens on its driver's socket
// while one listens on ours. It returns nil if the tenure or ctx ends first.
func (s *session) waitDead(ctx context.Context, t *tenure, ours string) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	dead := make(chan error, 2)
	watching.Go(func() {
		if waitRefused(ctx, t.path, func() bool { return true }) {
			dead <- errEvicted
		}
	})
	if t.endpoint != ours {
		watching.Go(func() {
			if waitRefused(ctx, t.endpoint, func() bool { return s.servedAlone(ctx, t, ours) }) {
				dead <- errOutlived
			}
		})
	}
	select {
	case why := <-dead:
		return why
	case <-t.ended:
	case <-ctx.Done():
	}
	return nil
}

// waitRefused returns true once no process listens on the socket at path and and()
// returns true. It returns false if ctx ends first. While a process listens, it keeps a
// connection open and waits for its end.
func waitRefused(ctx context.Context, path string, and func() bool) bool {
	for pause := retryMin; ctx.Err() == nil; pause = min(2*pause, retryMax) {
		probe, err := unixsocket.Dial(ctx, path)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
			if and() {
				return true
			}
		case err == nil:
			probe.Close()
			waitLost(ctx, path)
		}
		sleep(ctx, pause) // a live server may close an idle connection
	}
	return false
}

// servedAlone reports whether a process listens on our driver's socket. Its caller found
// none on the holder's.
func (s *session) servedAlone(ctx context.Context, t *tenure, ours string) bool {
	probe, err := unixsocket.Dial(ctx, ours)
	if err != nil {
		s.set(Waiting, fmt.Errorf("driver name is registered by %s, whose driver does not listen on %s, "+
			"nor does this one: %w", t.path, t.endpoint, err))
		return false
	}
	probe.Close()
	return true
}

// waitLost connects to the socket at path and returns when the connection fails or is
// lost, or ctx ends. It completes gRPC's handshake, because a server cannot shut down
// while it waits for the first bytes of a connection.
func waitLost(ctx context.Context, path string) {
	conn, err := dial(path)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.Connect()
	for s := conn.GetState(); s != connectivity.TransientFailure; s = conn.GetState() {
		if !conn.WaitForStateChange(ctx, s) || s == connectivity.Ready {
			return
		}
	}
}

// watchEndpoint watches the directory of the driver's own socket, so that an event there
// cuts the pause short: a socket that appears is the usual end of a failed Up.
func (s *session) watchEndpoint(p Plugin) {
	if err := s.w.watch(filepath.Dir(p.Endpoint)); err != nil {
		s.w.log.Debug("cannot watch the driver's socket", "driver", string(p.Name), "err", err)
	}
}

// pause waits for d or until an event, but at least retryMin.
func (s *session) pause(ctx context.Context, d time.Duration) {
	sleep(ctx, min(d, retryMin))
	timer := time.NewTimer(max(0, d-retryMin))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.poked:
	case <-ctx.Done():
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// describe sets the driver's name and endpoint in the socket's status.
func (s *session) describe(p Plugin) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.status.Driver, s.status.Endpoint = p.Name, p.Endpoint
}

// set publishes the session's state; problem may be nil.
func (s *session) set(to State, problem error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if to != Connecting {
		s.answered()
	}
	if s.status.State == to && s.status.Problem == text {
		return
	}
	if s.status.State != to {
		s.status.since = time.Now()
	}
	s.status.State, s.status.Problem = to, text
	s.w.change()
	s.w.log.Info("registration socket changed state", "socket", s.path, "driver", string(s.status.Driver), "state",
		string(to), "problem", text)
}

// answered counts the session's first answer. w.mu is held.
func (s *session) answered() {
	if s.first {
		s.first = false
		s.w.unanswered--
		s.w.checkSynced()
	}
}

// finish ends the session, so that the path's next session can begin.
func (s *session) finish() {
	s.end(nil)
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.answered()
	if s.w.tails[s.path] == s.done {
		delete(s.w.tails, s.path)
	}
	close(s.done)
}
