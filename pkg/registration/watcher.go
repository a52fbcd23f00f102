package registration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Timeouts of the protocol, and the pauses between attempts.
const (
	// infoTimeout bounds connecting and GetInfo, which answers from memory. The
	// kubelet allows 10 s and 1 s, but a registrar on a loaded node may need more
	// than 1 s to answer.
	infoTimeout = 5 * time.Second
	// notifyTimeout is the same as the kubelet's.
	notifyTimeout = 5 * time.Second
	// retryMin and retryMax are the shortest and longest pause after a failure of one
	// socket. An event in the directory, or in that of the driver's own socket, cuts a
	// pause short.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
	// rescanEvery is how often the directory is scanned without an event, in case a
	// change causes none, for example one made by another machine.
	rescanEvery = 5 * time.Minute
)

// ErrRefused marks an error of Handler.Up that no retry can end, for example that the
// driver's name is not the registered one.
var ErrRefused = errors.New("refused")

// Plugin is a registered driver.
type Plugin struct {
	Name state.DriverName
	// Endpoint is the path of the driver's CSI socket.
	Endpoint string

	socket     string // the path of its registration socket
	generation int    // increases with each socket that the watcher sees
}

// Handler is notified of drivers that come and go. Its methods are called from several
// goroutines, but never concurrently for one socket or one driver name. Each Up that
// returned nil is followed by one Down, at the latest before Run returns.
type Handler interface {
	// Up makes the driver available. It honours ctx, which ends when the socket
	// goes. An error is reported and Up is called again later, unless it wraps
	// ErrRefused.
	Up(ctx context.Context, p Plugin) error
	// Down undoes Up. reason is a sentence.
	Down(p Plugin, reason string)
}

// Config is the configuration of a [Watcher].
type Config struct {
	// Dir is the directory to watch. It is created if missing. Sockets in its
	// subdirectories count; names that begin with a dot do not.
	Dir string
	// Shared is set if a kubelet watches the directory too. Then no registrar is sent a
	// notification.
	Shared  bool
	Handler Handler
	// Logger may be nil for no log.
	Logger *slog.Logger
}

// Watcher watches a directory for the registration sockets of drivers.
type Watcher struct {
	dir     string
	shared  bool
	handler Handler
	log     *slog.Logger
	times   times
	// fs is set by Run before any session starts; nil if the kernel has no inotify instance left.
	fs     *fsnotify.Watcher
	synced chan struct{}

	mu         sync.Mutex                   // guards the fields below
	sessions   map[string]*session          // by path, of existing sockets
	tails      map[string]<-chan struct{}   // by path, closed when its newest session has ended
	names      map[state.DriverName]*tenure // who has each driver name
	generation int
	scanned    bool // the first scan is done
	unanswered int  // sessions of the first scan that have neither succeeded nor failed yet
	changed    chan struct{}
}

// times holds the constants above, so that a test can change them.
type times struct{ info, retry, rescan time.Duration }

// New returns a watcher that does nothing until Run is called.
func New(c Config) *Watcher {
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Watcher{
		dir:      c.Dir,
		shared:   c.Shared,
		handler:  c.Handler,
		log:      log,
		times:    times{info: infoTimeout, retry: retryMin, rescan: rescanEvery},
		synced:   make(chan struct{}),
		sessions: map[string]*session{},
		tails:    map[string]<-chan struct{}{},
		names:    map[state.DriverName]*tenure{},
		changed:  make(chan struct{}),
	}
}

// Run watches until ctx ends, and returns when every driver that was up is
// down again. It returns an error if the directory cannot be made or watched.
func (w *Watcher) Run(ctx context.Context) (err error) {
	var events chan fsnotify.Event
	var lost chan error
	if w.fs, err = fsnotify.NewWatcher(); err == nil {
		defer w.fs.Close()
		events, lost = w.fs.Events, w.fs.Errors
	}
	var sessions sync.WaitGroup
	defer sessions.Wait()
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)
	ticker := time.NewTicker(w.times.rescan)
	defer ticker.Stop()
	for watched, news := true, (heard{all: true}); ; {
		was := watched
		var found map[string]unixsocket.Identity
		found, watched, err = w.scan()
		var again <-chan time.Time
		switch {
		case scarce(err): // keep the sessions and retry
			w.log.Warn("registration directory cannot be read now", "err", err)
			again = time.After(scanPause)
		case err != nil:
			return err
		case !watched:
			if was {
				w.log.Warn("registration directory is not watched but read regularly, since the kernel has no inotify watch left; "+
					"raise fs.inotify.max_user_watches and fs.inotify.max_user_instances", "every", scanPause)
			}
			again = time.After(scanPause)
			fallthrough
		default:
			w.reconcile(life, found, news, &sessions)
		}
		for news = (heard{}); news.nothing(); {
			select {
			case <-ctx.Done():
				return nil
			case <-again:
				news.all = true
			case <-ticker.C:
				news.all = true
			case e := <-events:
				w.hear(&news, e)
			case err := <-lost:
				w.log.Warn("events of the registration directory were lost", "err", err)
				news.all = true
			}
			w.drain(&news, events, lost)
		}
	}
}

// scanPause is the pause after a scan that failed for lack of resources, or while there is no watch.
const scanPause = time.Second

// scarce reports whether err means that the process or the machine has no file
// descriptors or memory left, which ends by itself.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// errNoWatch means that the kernel has no inotify watch or instance left.
var errNoWatch = errors.New("no inotify watch left")

// watch watches a directory.
func (w *Watcher) watch(path string) error {
	if w.fs == nil {
		return errNoWatch
	}
	err := w.fs.Add(path)
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: %w", errNoWatch, err)
	}
	return err
}

// reconcile ends the sessions of sockets that are gone, and starts one for each new socket.
func (w *Watcher) reconcile(
	ctx context.Context, found map[string]unixsocket.Identity, events heard, running *sync.WaitGroup,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, s := range w.sessions {
		id, there := found[path]
		switch {
		case !there:
			s.end(errRemoved)
			delete(w.sessions, path)
			w.change()
		case id != s.id:
			s.end(errReplaced)
			delete(w.sessions, path)
		case events.concerns(s):
			s.poke()
		}
	}
	for path, id := range found {
		if w.sessions[path] != nil {
			continue
		}
		w.generation++
		s := &session{
			w: w, id: id, path: path,
			after: w.tails[path], done: make(chan struct{}), poked: make(chan struct{}, 1),
			status: SocketStatus{Path: path, State: Connecting, since: time.Now(), generation: w.generation},
			first:  !w.scanned,
		}
		ctx, end := context.WithCancelCause(ctx)
		s.end = end
		w.sessions[path], w.tails[path] = s, s.done
		w.change()
		running.Go(func() { s.run(ctx) })
	}
	if !w.scanned {
		w.scanned, w.unanswered = true, len(w.sessions)
		w.checkSynced()
	}
}

// checkSynced closes synced once all sockets of the first scan have answered. w.mu is held.
func (w *Watcher) checkSynced() {
	if w.scanned && w.unanswered == 0 {
		w.unanswered = -1
		close(w.synced)
	}
}

// scan creates the directory if it is missing, watches it, and returns the sockets in it. watched is
// false if the kernel has no watch left for one of the directories.
func (w *Watcher) scan() (found map[string]unixsocket.Identity, watched bool, err error) {
	watch := func(path string) error {
		err := w.watch(path)
		if errors.Is(err, errNoWatch) {
			watched = false
			return nil
		}
		return err
	}
	for range scanTries {
		if err = os.MkdirAll(w.dir, dirMode); err != nil {
			return nil, false, fmt.Errorf("make registration directory: %w", err)
		}
		watched = true
		found, err = scanDir(w.dir, watch)
		if !errors.Is(err, fs.ErrNotExist) { // else the directory was removed meanwhile
			break
		}
	}
	switch {
	case errors.Is(err, errTooMany): // the first ones, by name, are served
		w.log.Warn("registration directory holds too much", "err", err)
	case err != nil:
		return nil, false, fmt.Errorf("scan registration directory: %w", err)
	}
	return found, watched, nil
}
