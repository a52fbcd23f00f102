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

	"github.com/csi-volmgr/csi-volmgr/pkg/unixsocket"
)

// Why a driver goes down.
var (
	errRemoved  = errors.New("its registration socket was removed")
	errReplaced = errors.New("its registration socket was made anew")
	errEvicted  = errors.New("the process behind its registration socket is gone, and another socket has the name")
	errOutlived = errors.New("no process listens on its own socket, and another socket that has its name brings a " +
		"driver that lives")
	errStopped = errors.New("the watcher stops")
)

// session is one generation of one socket, from its first sight until it went.
// Its goroutine is run; status and first are guarded by the watcher's mutex.
type session struct {
	w      *Watcher
	id     unixsocket.Identity
	path   string
	end    context.CancelCauseFunc // ends it for a reason; does not wait
	after  <-chan struct{}         // closed when the path's previous session has ended; nil if none
	done   chan struct{}           // closed when this one has
	poked  chan struct{}           // of capacity 1: something happened, try again
	status SocketStatus
	first  bool // it was there at the start and had no answer yet
}

// tenure is a session's having a driver name.
type tenure struct {
	path     string
	endpoint string
	ended    chan struct{} // closed when the name is free again
	evict    chan error    // of capacity 1: why the holder has to give the name up
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
		<-s.after // its Down comes before our Up
	}
	pause := s.w.times.retry
	for ctx.Err() == nil {
		err := s.register(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errIgnored):
			s.set(Ignored, nil)
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

// register asks the socket what it is, brings its driver up, and stays until
// the driver has to go down; then the error says why it should be tried again.
func (s *session) register(ctx context.Context) error {
	info, err := getInfo(ctx, s.path, s.w.times.info)
	if err != nil {
		return err
	}
	p, err := checkInfo(info, s.path, s.w.shared)
	s.describe(p)
	if err != nil {
		return err
	}
	p.Generation = s.status.Generation
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

// stayUp tells the registrar of its success, and returns why the driver has to
// go down once it has to. That the news did not arrive does no harm to volumes,
// so the driver stays up; the session sends it again, and meanwhile the status says so.
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
			s.set(Up, fmt.Errorf("up, but its registrar could not be told: %w", err))
			timer.Reset(pause)
		}
	}
}

// sendRefusal makes a registrar exit, so it is only for failures that no retry ends,
// and not where a kubelet watches the directory too and may have accepted the driver.
func (s *session) sendRefusal(ctx context.Context, why error) {
	if s.w.shared {
		return
	}
	err := notify(ctx, s.path, &registerapi.RegistrationStatus{Error: why.Error()})
	// A registrar exits before it answers: the error is what success looks like.
	s.w.log.Debug("refusal was sent", "socket", s.path, "err", err)
}

// claim waits until the session has the driver's name; nil if the socket went
// first. A holder whose process is dead loses it, and so does one whose driver is
// dead while ours lives: a registrar may outlive its driver.
func (s *session) claim(ctx context.Context, p Plugin) *tenure {
	for ctx.Err() == nil {
		t, mine := s.tryClaim(p)
		if mine {
			return t
		}
		s.set(Waiting, fmt.Errorf("driver name is registered by %s, whose process lives", t.path))
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

// tryClaim takes the name, or returns the tenure of the session that has it.
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

// giveUp gives the name back.
func (s *session) giveUp(p Plugin, t *tenure) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	delete(s.w.names, p.Name)
	close(t.ended)
}

// waitDead returns why the holder of a name cannot serve it any more, or nil
// when its tenure or ctx ends first: no process listens on its registration socket,
// or none on its driver's and one on ours.
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

// waitRefused returns true when no process listens on the socket at path while and
// is so too, and false when ctx ends first. It holds a connection, whose end is
// the news.
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
		sleep(ctx, pause) // a live server may close a connection that asks nothing
	}
	return false
}

// servedAlone reports whether our driver is served, now that the holder's is not.
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

// waitLost connects to the socket at path and returns when the connection is
// lost, or could not be made, or ctx ended. It is a whole gRPC connection: a
// server that waits for the first bytes of one cannot stop meanwhile.
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

// watchEndpoint has events where the driver's own socket should be cut the
// pause short, for that is what most often cures a failed Up.
func (s *session) watchEndpoint(p Plugin) {
	if err := s.w.fs.Add(filepath.Dir(p.Endpoint)); err != nil {
		s.w.log.Debug("cannot watch the driver's socket", "driver", string(p.Name), "err", err)
	}
}

// pause waits for d, or for an event, but at least retryMin.
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

// describe puts what the socket said of itself into its status.
func (s *session) describe(p Plugin) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.status.Driver, s.status.Endpoint = p.Name, p.Endpoint
}

// set makes the session's state known; a nil problem is none.
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
		s.status.Since = time.Now()
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

// finish lets the path's next session begin.
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
