package registration

import (
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// State is how far a socket is, by one word.
type State string

// The states of a socket.
const (
	// Connecting: it is being asked what it is, or its driver is being brought up.
	Connecting State = "connecting"
	// Up: its driver is up.
	Up State = "up"
	// Retrying: it or its driver failed, and is tried again.
	Retrying State = "retrying"
	// Waiting: another socket has its driver's name.
	Waiting State = "waiting"
	// Refused: what it says cannot be served, and will not be until it is made anew.
	Refused State = "refused"
	// Ignored: it is a plugin of another type, and a kubelet's business.
	Ignored State = "ignored"
)

// SocketStatus is one socket as it stands.
type SocketStatus struct {
	Path string `json:"path"`
	// Driver is the name it gave; "" while it gave none.
	Driver state.DriverName `json:"driver,omitempty"`
	// Endpoint is the driver's CSI socket as it gave it.
	Endpoint string `json:"endpoint,omitempty"`
	State    State  `json:"state"`
	// Problem says what is wrong, for people; "" where nothing is.
	Problem string `json:"problem,omitempty"`
	// Since is when State became what it is.
	Since      time.Time `json:"since"`
	Generation int       `json:"generation"`
}

// Sockets returns every socket there is, by path.
func (w *Watcher) Sockets() []SocketStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]SocketStatus, 0, len(w.sessions))
	for _, s := range w.sessions {
		all = append(all, s.status)
	}
	slices.SortFunc(all, func(a, b SocketStatus) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// Changed returns a channel that is closed at the next change of what Sockets
// returns. Call it before Sockets.
func (w *Watcher) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// Synced returns a channel that is closed when every socket that was there at
// the start is up, or failed to be once.
func (w *Watcher) Synced() <-chan struct{} { return w.synced }

// change wakes who waits on Changed. w.mu is held.
func (w *Watcher) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}
