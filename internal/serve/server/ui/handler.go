package ui

import (
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// pause is the minimum time between two updates of one page.
	pause = 250 * time.Millisecond
	// writeTimeout is how long a page may leave one write unread.
	writeTimeout = 30 * time.Second
)

//go:embed page.html page.css page.js
var files embed.FS

// Config is what a [Handler] shows. All fields are required.
type Config struct {
	Pods     func() []manager.PodStatus
	Drivers  func() []manager.DriverStatus
	Problems func() []Problem
	// Why returns, for one update of the page, a function that says in one sentence why
	// a pod's volume is not as wanted, with the text of its explanation; "" if there is
	// no reason.
	Why func() func(state.PodUID, manager.PodVolumeStatus) string
	// Changed returns a channel that is closed at the next change of any of these.
	Changed func() <-chan struct{}
	// Explain explains the state of a pod or driver in lines of text.
	Explain func(kind, name string) (string, error)
	// Node is the node's name.
	Node string
	// Stopping is closed when the server stops, which ends the streams.
	Stopping <-chan struct{}
}

// Handler serves the page under /ui/.
type Handler struct {
	cfg   Config
	mux   *http.ServeMux
	pages shares
}

// New returns a handler for /ui/.
func New(cfg Config) *Handler {
	h := &Handler{cfg: cfg, mux: http.NewServeMux(), pages: shares{of: map[string]int{}}}
	h.mux.HandleFunc("GET /ui/{$}", h.file("page.html", "text/html; charset=utf-8"))
	h.mux.HandleFunc("GET /ui/page.css", h.file("page.css", "text/css; charset=utf-8"))
	h.mux.HandleFunc("GET /ui/page.js", h.file("page.js", "text/javascript; charset=utf-8"))
	h.mux.HandleFunc("GET /ui/rows", h.rows)
	h.mux.HandleFunc("GET /ui/explain/{kind}/{name...}", h.explain)
	return h
}

// ServeHTTP serves the page. It refuses requests whose Host is not an address or
// localhost, to stop DNS rebinding: a foreign name that was made to resolve to
// 127.0.0.1.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !ByAddress(r.Host) {
		http.Error(w, fmt.Sprintf("host %q: open this page by address, or as localhost", r.Host), http.StatusForbidden)
		return
	}
	head := w.Header()
	head.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "+
			"form-action 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

// ByAddress reports whether the host of a request, with or without a port, is an
// address or localhost, and so not a name that its owner can make resolve to this
// machine.
func ByAddress(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if host == "localhost" {
		return true
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}

func (h *Handler) file(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		b, err := files.ReadFile(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(b)
	}
}

func (h *Handler) explain(w http.ResponseWriter, r *http.Request) {
	text, err := h.cfg.Explain(r.PathValue("kind"), r.PathValue("name"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text))
}

// rows streams server-sent events: first one with all rows and the node's name, then
// one for each change.
func (h *Handler) rows(w http.ResponseWriter, r *http.Request) {
	free, err := h.pages.take(visitorOf(r))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer free()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // else the server would end the stream of a page that sends nothing
	w.Header().Set("Content-Type", "text/event-stream")

	var before []Row
	for first := true; ; first = false {
		next := h.cfg.Changed() // before the rows are made, so that no change is missed
		now := h.look()
		if c := diff(before, now); first || !c.empty() {
			if err := h.send(w, rc, first, c); err != nil {
				return
			}
		}
		before = now
		if !sleep(h, r, next) {
			return
		}
		t := time.NewTimer(pause)
		ok := sleep(h, r, t.C)
		t.Stop()
		if !ok {
			return
		}
	}
}

func (h *Handler) send(w http.ResponseWriter, rc *http.ResponseController, first bool, c changes) error {
	message := struct {
		Node string `json:"node,omitempty"`
		changes
	}{changes: c}
	if first {
		message.Node = h.cfg.Node
	}
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil {
		return err
	}
	return rc.Flush()
}

// sleep waits for woken, the end of the page or the stop of the server. It reports
// whether to continue.
func sleep[T any](h *Handler, r *http.Request, woken <-chan T) bool {
	select {
	case <-woken:
		return true
	case <-r.Context().Done():
		return false
	case <-h.cfg.Stopping:
		return false
	}
}
