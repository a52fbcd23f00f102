package drivers_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/drivers"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// heard notes who is called with what, in order.
type heard struct {
	mu    sync.Mutex
	lines []string
	news  chan struct{}
}

func (h *heard) note(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// until waits for all of lines, in any order, and forgets them.
func (h *heard) until(t *testing.T, lines ...string) {
	t.Helper()
	slices.Sort(lines)
	for {
		h.mu.Lock()
		got := slices.Sorted(slices.Values(h.lines))
		if slices.Equal(got, lines) {
			h.lines = nil
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		select {
		case <-h.news:
		case <-t.Context().Done():
			t.Fatalf("told %q, want %q", got, lines)
		}
		if len(got) > len(lines) {
			t.Fatalf("told %q, want %q", got, lines)
		}
	}
}

type loop struct{ *heard }

func (l loop) DriverUp(_ manager.DriverInfo, d manager.Driver) {
	if d == nil {
		panic("no driver to call")
	}
	l.note("loop up")
}
func (l loop) DriverDown(state.DriverName, string) { l.note("loop down") }
func (l loop) DriverAttaches(_ state.DriverName, attaches bool, why *string) {
	if why == nil {
		l.note("loop: no controller apart")
		return
	}
	l.note(fmt.Sprintf("loop attaches %t, away %t", attaches, *why != ""))
}
func (l loop) DriverLimit(state.DriverName, int64) { l.note("loop limit") }

type controllers struct{ *heard }

func (c controllers) DriverUp(d controller.Driver) {
	if d.Node == nil {
		c.note("controller up")
		return
	}
	c.note("controller up, node " + cmp.Or(d.NodeID, d.Node.Unknown))
}
func (c controllers) DriverDown(state.DriverName) { c.note("controller down") }
func (c controllers) DriverAbsent(_ state.DriverName, why controller.Absence) {
	c.note("controller absent " + string(why.Code))
}

type cluster struct{ *heard }

func (c cluster) DriverUp(report.Driver)      { c.note("cluster up") }
func (c cluster) DriverDown(state.DriverName) { c.note("cluster down") }

// rig has Drivers, and a local driver that can be stopped and started.
type rig struct {
	*drivers.Drivers
	*heard
	plugin registration.Plugin
	root   string
}

func newRig(t *testing.T, inCluster bool) *rig {
	h := &heard{news: make(chan struct{}, 1)}
	r := &rig{heard: h, root: t.TempDir()}
	c := drivers.Config{
		Loop: loop{h}, Controllers: controllers{h}, Logger: slog.New(slog.DiscardHandler),
		Client: func(state.DriverName) csiclient.Config { return csiclient.Config{Root: r.root} },
		Serve:  func(d *csiclient.Driver, _ csiclient.Info) manager.Driver { return d },
	}
	if inCluster {
		c.Cluster = cluster{h}
	}
	r.Drivers = drivers.New(c)
	r.plugin = registration.Plugin{Name: localdriver.DefaultName, Endpoint: filepath.Join(r.root, "csi.sock")}
	return r
}

// serve runs the driver until stop is called.
func (r *rig) serve(t *testing.T) (stop func()) {
	d, err := localdriver.New(localdriver.Config{NodeID: "n1", StateDir: filepath.Join(r.root, "driver"), Roots: []string{r.root}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, r.plugin.Endpoint) }()
	return func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// When a driver's process ends, the loop and the controller lose the driver. The cluster does
// not: the driver is still registered, and comes back. When it is unregistered, all lose it.
//
// Items: J04.
func TestWhoIsToldOfADriver(t *testing.T) {
	r := newRig(t, true)
	stop := r.serve(t)
	for r.Up(t.Context(), r.plugin) != nil { // it may not listen yet
		r.until(t, "loop down")
	}
	r.until(t, "loop up", "controller up", "cluster up")
	if d := r.Registered()[r.plugin.Name]; d == nil {
		t.Error("it is not among the registered")
	}
	if _, err := r.Limit(t.Context(), r.plugin.Name); err != nil {
		t.Error(err)
	}
	r.until(t, "loop limit")
	stop()
	r.until(t, "loop down", "controller down")
	stop = r.serve(t)
	defer func() { stop() }()
	r.until(t, "loop up", "controller up", "cluster up")
	r.Down(r.plugin, "its socket is gone")
	r.until(t, "loop down", "controller down", "cluster down")
	if len(r.Registered()) != 0 {
		t.Error("it is registered still")
	}
	_, err := r.Limit(t.Context(), r.plugin.Name)
	if err == nil || !strings.Contains(err.Error(), "it is not registered") {
		t.Errorf("a limit of none: %v", err)
	}
}

// Without a cluster, only the loop and the controller are called.
func TestNoClusterIsTold(t *testing.T) {
	r := newRig(t, false)
	defer r.serve(t)()
	for r.Up(t.Context(), r.plugin) != nil {
		r.until(t, "loop down")
	}
	r.until(t, "loop up", "controller up")
	r.Down(r.plugin, "its socket is gone")
	r.until(t, "loop down", "controller down")
}

// A driver that answers with another name is refused for good, and the loop gets the reason.
func TestADriverOfAnotherNameIsRefused(t *testing.T) {
	r := newRig(t, false)
	defer r.serve(t)()
	for r.Up(t.Context(), r.plugin) != nil {
		r.until(t, "loop down")
	}
	r.until(t, "loop up", "controller up")
	other := r.plugin
	other.Name = "other.example"
	if err := r.Up(t.Context(), other); !errors.Is(err, registration.ErrRefused) {
		t.Errorf("another name: %v", err)
	}
	r.until(t, "loop down")
	if len(r.Registered()) != 1 {
		t.Error("the refused driver is among the registered")
	}
	r.Down(r.plugin, "its socket is gone")
}
