package registration

import (
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// State is the state of a socket.
type State string

// The states of a socket.
const (
	// Connecting means that the handshake runs, or that the driver is being brought up.
	Connecting State = "connecting"
	// Up means that the driver is up.
	Up State = "up"
	// Retrying means that the handshake or the driver failed, and is retried.
	Retrying State = "retrying"
	// Waiting means that another socket has the driver's name.
	Waiting State = "waiting"
	// Refused means that the plugin cannot be served until it creates a new socket.
	Refused State = "refused"
	// Ignored means that the plugin has another type, which is left to a kubelet.
	Ignored State = "ignored"
)

// SocketStatus is the status of one socket.
type SocketStatus struct {
	Path string `json:"path"`
	// Driver is the name that the plugin gave; "" if it has not given one yet.
	Driver state.DriverName `json:"driver,omitempty"`
	// Endpoint is the path of the driver's CSI socket, from the plugin.
	Endpoint string `json:"endpoint,omitempty"`
	State    State  `json:"state"`
	// Problem says in a sentence what is wrong; "" if nothing is.
	Problem string `json:"problem,omitempty"`

	since      time.Time // when State last changed
	generation int
}

// Sockets returns the status of all sockets, sorted by path.
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

// Synced returns a channel that is closed once every socket of the first scan is up or
// has failed once.
func (w *Watcher) Synced() <-chan struct{} { return w.synced }

// change closes the channel of Changed and makes a new one. w.mu is held.
func (w *Watcher) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}
