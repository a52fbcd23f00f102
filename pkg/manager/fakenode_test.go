package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// storage answers what a Kernel is asked besides Look, on a node where nothing is wrong.
type storage struct{}

func (storage) Elsewhere(context.Context, string) ([]string, error) { return nil, nil }
func (storage) Size(context.Context, string) (state.Sizes, error)   { return state.Sizes{}, nil }
func (storage) Probe(context.Context, string) error                 { return nil }
func (storage) HostPath(context.Context, string) error              { return nil }

// fakeNode is a node in memory, which the manager sees only through its calls and looks. It
// fails the test on a call that a strict driver would refuse.
type fakeNode struct {
	storage
	t *testing.T

	mu        sync.Mutex
	attached  map[state.VolumeID]bool
	staged    map[string]string         // stage path -> request
	published map[string]string         // target -> request
	devices   map[string]bool           // targets that are block devices
	inFlight  map[state.VolumeID]string // the call in flight
	log       []string                  // every call that took effect or was answered
	fault     func(call string) fault   // nil: none
	revisions map[string]string         // target -> content
	took      map[string]int            // calls by verb
}

// fault is how a call goes wrong. The zero value is success.
type fault struct {
	err    error
	effect bool          // the call has its effect although it fails
	lie    bool          // the call is answered OK without its effect
	takes  time.Duration // how long the driver works
	hangs  bool          // until its context ends, and returns then
}

func newFakeNode(t *testing.T) *fakeNode {
	return &fakeNode{
		t: t, attached: map[state.VolumeID]bool{}, staged: map[string]string{}, published: map[string]string{},
		inFlight: map[state.VolumeID]string{}, devices: map[string]bool{}, revisions: map[string]string{}, took: map[string]int{},
	}
}

// call makes one call: it checks the order of calls, then applies the fault.
func (h *fakeNode) call(ctx context.Context, v state.Volume, verb string, pod state.PodUID, effect func()) error {
	name := verb + " " + string(v.ID)
	if pod != "" {
		name += " " + string(pod)
	}
	h.mu.Lock()
	if other := h.inFlight[v.ID]; other != "" {
		h.t.Errorf("rule 2: %s while %s is in flight", name, other)
	}
	h.inFlight[v.ID] = name
	h.took[verb]++
	var f fault
	if h.fault != nil {
		f = h.fault(name)
	}
	h.mu.Unlock()
	if f.takes > 0 {
		time.Sleep(f.takes)
	}
	if f.hangs {
		<-ctx.Done()
		f.err = ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inFlight, v.ID)
	h.log = append(h.log, name)
	if !f.lie && (f.err == nil || f.effect) {
		effect()
	}
	return f.err
}

func (h *fakeNode) Attach(ctx context.Context, v state.Volume) (map[string]string, error) {
	err := h.call(ctx, v, "Attach", "", func() { h.attached[v.ID] = true })
	return map[string]string{"device": "x"}, err
}

func (h *fakeNode) Detach(ctx context.Context, v state.Volume) error {
	return h.call(ctx, v, "Detach", "", func() {
		if h.staged[v.Spec.StagePath] != "" {
			h.t.Errorf("rule 1: detach of %s while it is staged", v.ID)
		}
		delete(h.attached, v.ID)
	})
}

func (h *fakeNode) Stage(ctx context.Context, v state.Volume) error {
	return h.call(ctx, v, "Stage", "", func() {
		if v.Needs.Attach && (!h.attached[v.ID] || v.PublishContext["device"] != "x") {
			h.t.Errorf("rule 1: stage of %s before attach", v.ID)
		}
		h.staged[v.Spec.StagePath] = v.Spec.FSType + "!"
	})
}

func (h *fakeNode) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, h.call(ctx, v, "Publish", pod, func() {
		if v.Needs.Stage && h.staged[v.Spec.StagePath] == "" {
			h.t.Errorf("rule 1: publish of %s before stage", v.ID)
		}
		h.published[v.Mounts[pod].Target] = string(v.ID)
		h.devices[v.Mounts[pod].Target] = v.Spec.Mode == state.Block
	})
}

func (h *fakeNode) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	return h.call(ctx, v, "Unpublish", pod, func() { delete(h.published, v.Mounts[pod].Target) })
}

func (h *fakeNode) Unstage(ctx context.Context, v state.Volume) error {
	return h.call(ctx, v, "Unstage", "", func() {
		for target, id := range h.published {
			if id == string(v.ID) {
				h.t.Errorf("rule 1: unstage of %s while it is published at %s", id, target)
			}
		}
		delete(h.staged, v.Spec.StagePath)
	})
}

func (h *fakeNode) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	return bytes, h.call(ctx, v, "Expand", pod, func() {})
}

// Look returns the true state of a path.
func (h *fakeNode) Look(_ context.Context, path string) (state.Seen, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.staged[path] != "" || h.published[path] != "" {
		return state.Seen{Exists: true, Mounted: true, BlockDevice: h.devices[path], Dev: 7, Layers: 1}, nil
	}
	return state.Seen{}, nil
}

// fails sets how calls go wrong from now on; f runs with the fakeNode locked.
func (h *fakeNode) fails(f func(call string) fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = f
}

func (h *fakeNode) calls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// busy returns the calls in flight, sorted.
func (h *fakeNode) busy() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Values(h.inFlight))
}

func (h *fakeNode) clean() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.staged) == 0 && len(h.published) == 0 && len(h.attached) == 0
}

// faultsBySeed fails a quarter of all calls without effect and a quarter with it.
func faultsBySeed(seed uint64) func(string) fault {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(string) fault {
		f := fault{takes: time.Duration(rng.IntN(50)) * time.Millisecond}
		switch rng.IntN(8) {
		case 0, 1:
			f.err = errors.New("no effect")
		case 2:
			f.err, f.effect = &state.CallError{Outcome: state.Uncertain, Call: "x", Code: "Unavailable", Err: errors.New("answer lost")}, true
		case 3:
			f.lie = true
		}
		return f
	}
}

// disk is a store that survives its daemon and fails for ever after some commits.
type disk struct {
	*journal.Memory
	mu      sync.Mutex
	left    int // commits until it fails; negative: never
	commits int
	lost    state.Recovery
}

func (d *disk) Load(ctx context.Context) (state.Loaded, error) {
	loaded, err := d.Memory.Load(ctx)
	loaded.Recovery = d.lost
	return loaded, err
}

var errDisk = errors.New("disk is gone")

func newDisk() *disk { return &disk{Memory: journal.NewMemory(), left: -1} }

func (d *disk) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return errDisk
	}
	d.left--
	d.commits++
	return d.Memory.Commit(ctx, changes)
}

func (d *disk) fail(after int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = after
}

func (d *disk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.commits
}

func (d *disk) records(t *testing.T) map[state.VolumeID]state.Volume {
	t.Helper()
	l, err := d.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Volumes
}

// life is one run of a manager.
type life struct {
	*Manager
	stop func() error
}

type option func(*Config)

func boot(id string) option          { return func(c *Config) { c.BootID = id } }
func sources(names ...string) option { return func(c *Config) { c.Sources = names } }

// live starts a manager on h and d, with driver "d" not up yet.
func live(t *testing.T, h *fakeNode, d *disk, opts ...option) *life {
	t.Helper()
	cfg := Config{Store: d, Kernel: h, Attacher: h, BootID: "boot-1", Logger: slog.New(slog.DiscardHandler)}
	if os.Getenv("LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, o := range opts {
		o(&cfg)
	}
	if len(cfg.Sources) == 0 && len(d.records(t)) > 0 {
		t.Fatal("the journal has records and no source lists its pods: the manager would remove mounts that a pod " +
			"wants if it plans before the test's next line")
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	var once sync.Once
	var ended error
	l := &life{m, func() error {
		once.Do(func() { cancel(); ended = <-done })
		return ended
	}}
	t.Cleanup(func() { _ = l.stop() })
	return l
}

func (l *life) up(h *fakeNode) {
	l.DriverUp(DriverInfo{Name: "d", Stage: true, Expand: true, MountsTarget: true}, h)
}

// wantOf is volume vol as pod wants it.
func wantOf(pod, vol string) state.VolumeWant {
	return state.VolumeWant{
		Names: []string{vol}, ID: state.SharedID("d", vol), SizeBytes: 1,
		Spec: state.Spec{Driver: "d", Handle: vol, Name: vol, Mode: state.Filesystem, StagePath: "/stage/" + vol},
		Mount: state.MountSpec{
			Pod: state.Pod{UID: state.PodUID(pod), Namespace: "n", Name: pod}, Names: []string{vol}, Target: "/pods/" + pod + "/" + vol,
		},
	}
}

func podWant(pod string, vols ...string) state.PodWant {
	p := state.PodWant{Pod: state.Pod{UID: state.PodUID(pod), Namespace: "n", Name: pod}}
	for _, v := range vols {
		p.Volumes = append(p.Volumes, wantOf(pod, v))
	}
	return p
}

// mounted waits, in virtual time, until the pod's volumes are mounted.
func mounted(t *testing.T, l *life, pod string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := l.WaitForAttachAndMount(ctx, state.PodUID(pod)); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, l *life, pod string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := l.WaitForUnmount(ctx, state.PodUID(pod)); err != nil {
		t.Fatal(err)
	}
}

// rest lets an hour of virtual time pass, so that everything that can happen has happened.
func rest() {
	time.Sleep(time.Hour)
	synctest.Wait()
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func text[K comparable, V any](m map[K]V) string {
	var s []string
	for k := range maps.Keys(m) {
		s = append(s, fmt.Sprint(k))
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

// oneLayer is a mount table with one mount at each path, as the fakeNode makes them.
func oneLayer(paths ...string) map[string]state.Seen {
	mounts := map[string]state.Seen{}
	for _, path := range paths {
		mounts[path] = state.Seen{Mounted: true, Layers: 1}
	}
	return mounts
}

func inUse(l *life) []state.InUse {
	used, _ := l.AttachedInUse()
	return used
}

// stall keeps the loop from taking events until resume is called.
func stall(l *life) (resume func()) {
	gate := make(chan struct{})
	l.post(func(*loop) { <-gate })
	synctest.Wait()
	return func() { close(gate) }
}

// atOnce makes the loop handle all events that f posts in one round.
func (l *life) atOnce(f func()) {
	resume := stall(l)
	f()
	resume()
}
