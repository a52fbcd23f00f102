package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if askedAsStranger() {
		return
	}
	if len(os.TempDir()) > 24 {
		os.Setenv("TMPDIR", "/tmp") // a socket's address has at most 107 bytes, and includes the test's name
	}
	goleak.VerifyTestMain(m)
}

// backend is the inside of a daemon, in memory: it shows what the test sets and remembers the requests.
type backend struct {
	mu      sync.Mutex // guards the fields below
	facts   Facts
	changed chan struct{}
	deleted []string
	applied []Manifest
	err     error // the error of every verb
	blocked string

	containers Containers
}

func newBackend(f Facts) *backend { return &backend{facts: f, changed: make(chan struct{})} }

// set changes what the backend shows, and wakes the watchers.
func (b *backend) set(change func(f *Facts)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.facts)
	close(b.changed)
	b.changed = make(chan struct{})
}

func read[T any](b *backend, get func(Facts) T) T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return get(b.facts)
}

func (b *backend) Volumes() []manager.VolumeStatus {
	return read(b, func(f Facts) []manager.VolumeStatus { return f.Volumes })
}

func (b *backend) Volume(id state.VolumeID) (manager.VolumeStatus, bool) {
	return read(b, func(f Facts) Facts { return f }).volume(id)
}

func (b *backend) Pods() []manager.PodStatus {
	return read(b, func(f Facts) []manager.PodStatus { return f.Pods })
}

// FollowPods starts a feed of the pods.
func (b *backend) FollowPods() PodFeed {
	return &podFeed{backend: b, told: map[state.PodUID]manager.PodStatus{}, next: b.Changed()}
}

// podFeed finds changes by comparing lists.
type podFeed struct {
	*backend
	mu     sync.Mutex // guards the fields below
	told   map[state.PodUID]manager.PodStatus
	next   <-chan struct{}
	closed bool
}

func (f *podFeed) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

func (f *podFeed) Take() (changed []manager.PodStatus, gone []state.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = f.backend.Changed()
	now := map[state.PodUID]manager.PodStatus{}
	for _, p := range f.Pods() {
		now[p.Pod.UID] = p
		if was, ok := f.told[p.Pod.UID]; !ok || !reflect.DeepEqual(was, p) {
			changed = append(changed, p)
		}
	}
	for uid, p := range f.told {
		if _, ok := now[uid]; !ok {
			gone = append(gone, p.Pod)
		}
	}
	f.told = now
	return changed, gone
}

func (f *podFeed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

func (b *backend) Drivers() []manager.DriverStatus {
	return read(b, func(f Facts) []manager.DriverStatus { return f.Drivers })
}

func (b *backend) Claims() []ClaimStatus {
	return read(b, func(f Facts) []ClaimStatus { return f.Claims })
}

func (b *backend) Schedules(context.Context) ([]ScheduleStatus, error) {
	return []ScheduleStatus{{Namespace: "default", Name: "data-daily", Claim: "data", Every: "daily", Keep: 7}}, nil
}

func (b *backend) SetSchedule(_ context.Context, r ScheduleRequest) (note string, err error) {
	return "", b.remove("schedule " + r.Namespace + "/" + r.Name + " of " + r.Claim + " " + r.Every)
}

func (b *backend) RemoveSchedule(_ context.Context, namespace, name string) error {
	return b.remove("no schedule " + namespace + "/" + name)
}

func (b *backend) Snapshots() []SnapshotStatus {
	if set := read(b, func(f Facts) []SnapshotStatus { return f.Snapshots }); set != nil {
		return set
	}
	return []SnapshotStatus{{Namespace: "default", Name: "monday", Phase: "Ready", Ready: true, Claim: "data"}}
}

func (b *backend) GroupSnapshots() []GroupSnapshotStatus {
	if set := read(b, func(f Facts) []GroupSnapshotStatus { return f.Groups }); set != nil {
		return set
	}
	return []GroupSnapshotStatus{{
		Namespace: "default", Name: "monday", Phase: "Ready", Ready: true, Claims: []string{"data", "log"},
		Snapshots: []string{"shop-data", "shop-log"}, Handle: "group-1", Consistency: "frozen",
	}}
}

func (b *backend) DeleteSnapshot(_ context.Context, _ audit.By, d SnapshotDeletion) (string, error) {
	if d.Data {
		return "", b.remove("snapshot " + d.Namespace + "/" + d.Name + " although it is to stay " + d.Reason)
	}
	return "it is kept", b.remove("snapshot " + d.Namespace + "/" + d.Name + " " + d.Reason)
}

func (b *backend) PersistentVolumes() []PVStatus {
	return read(b, func(f Facts) []PVStatus { return f.PersistentVolumes })
}

func (b *backend) Problems() []Problem {
	return read(b, func(f Facts) []Problem { return f.Problems })
}

func (b *backend) Sockets() []SocketStatus {
	return read(b, func(f Facts) []SocketStatus { return f.Sockets })
}

func (b *backend) Blocked() string { return b.blocked }

func (b *backend) Degraded() []string { return []string{"the journal may have lost records"} }

func (b *backend) NotReady() []string {
	return read(b, func(f Facts) []string { return f.NotReady })
}

func (b *backend) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *backend) Apply(_ context.Context, m Manifest) ([]Applied, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.applied = append(b.applied, m)
	return []Applied{{Kind: "pod", Namespace: "default", Name: "web", Result: "created"}}, b.err
}

func (b *backend) Withdraw(_ context.Context, m Manifest) ([]Applied, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []Applied{{Kind: "pvc", Namespace: "default", Name: "data", Result: "kept"}}, b.err
}

func (b *backend) DeletePod(_ context.Context, ns, name string) error {
	return b.remove("pod " + ns + "/" + name)
}

func (b *backend) DeleteClaim(_ context.Context, _ audit.By, d ClaimDeletion) (string, error) {
	if d.Data {
		return "", b.remove("claim " + d.Namespace + "/" + d.Name + " with its data " + d.Reason)
	}
	return "its volume is kept", b.remove("claim " + d.Namespace + "/" + d.Name + " " + d.Reason)
}

func (b *backend) ContainerMounts(ctx context.Context, c Container) ([]ContainerMount, error) {
	r := read(b, func(Facts) Containers { return b.containers })
	if r == nil {
		return nil, fmt.Errorf("%w: no containers", ErrNotFound)
	}
	return r.ContainerMounts(ctx, c)
}

func (b *backend) Whole(pod []Mount) []Mount {
	if r := read(b, func(Facts) Containers { return b.containers }); r != nil {
		return r.Whole(pod)
	}
	return pod
}

func (b *backend) remove(what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return fmt.Errorf("%s: %w", what, b.err)
	}
	b.deleted = append(b.deleted, what)
	return nil
}

func (b *backend) AllCalls() []manager.EndedCall {
	var ids []state.VolumeID
	for _, v := range b.Volumes() {
		ids = append(ids, v.Volume.ID)
	}
	return b.Calls(ids...)
}

func (b *backend) Calls(ids ...state.VolumeID) []manager.EndedCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []manager.EndedCall
	for _, id := range ids {
		out = append(out, manager.EndedCall{Volume: id, Op: plan.Stage, Began: now, TookNanos: time.Second})
	}
	return out
}

// config returns the configuration to serve b at a socket in a directory of the test.
func config(t *testing.T, b *backend) Config {
	t.Helper()
	return Config{
		Socket: filepath.Join(t.TempDir(), "run", "api.sock"), HTTPAddress: "127.0.0.1:0",
		Volumes: b, FollowPods: b.FollowPods, Objects: b, Claims: b, Health: b, Containers: b, Trace: b, Schedules: b,
		Metrics: prometheus.NewRegistry(), Version: Version{Version: "v1", Go: "go", Node: "n1"},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() time.Time { return now },
	}
}

// start runs a server and returns it with a function that stops it; the test's end stops it too.
func start(t *testing.T, cfg Config) (*Server, func() error) {
	t.Helper()
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return s, stop
}

// CallsNamed knows one volume that is gone.
func (b *backend) CallsNamed(name string) []state.VolumeID {
	if name == "gone" {
		return []state.VolumeID{"d^gone"}
	}
	return nil
}

// CallsOfPod knows one pod that is gone.
func (b *backend) CallsOfPod(name string) []state.VolumeID {
	if name == "default/gone" {
		return []state.VolumeID{"d^gone"}
	}
	return nil
}
