package registration

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// heard is what events say since the last scan. What a program writes beside a socket says nothing: a log file in the
// directory of a driver's socket would otherwise cut each pause short.
type heard struct {
	// all means that something may have happened to any socket.
	all bool
	// scan means that the registration directory may have other sockets.
	scan bool
	// names are the registration sockets and drivers' own sockets to which something happened.
	names map[string]bool
}

// nothing reports whether no scan is due.
func (h heard) nothing() bool { return !h.all && !h.scan && len(h.names) == 0 }

// concerns reports whether something happened to one of the session's sockets. The watcher's mutex is held.
func (h heard) concerns(s *session) bool {
	return h.all || h.names[s.path] || s.status.Endpoint != "" && h.names[filepath.Clean(s.status.Endpoint)]
}

// hear adds an event.
func (w *Watcher) hear(h *heard, e fsnotify.Event) {
	name := filepath.Clean(e.Name)
	if pathname.Within(name, filepath.Clean(w.dir)) && e.Has(fsnotify.Create|fsnotify.Remove|fsnotify.Rename) {
		h.scan = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	one := heard{names: map[string]bool{name: true}}
	for _, s := range w.sessions {
		if one.concerns(s) {
			if h.names == nil {
				h.names = map[string]bool{}
			}
			h.names[name] = true
			return
		}
	}
}

// drain adds the pending events: one scan serves them all.
func (w *Watcher) drain(h *heard, events <-chan fsnotify.Event, lost <-chan error) {
	for {
		select {
		case e := <-events:
			w.hear(h, e)
		case <-lost:
			h.all = true
		default:
			return
		}
	}
}
