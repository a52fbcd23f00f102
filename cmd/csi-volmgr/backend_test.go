package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// scene is a state of a node, which the scripted daemon shows.
type scene struct {
	pods      []manager.PodStatus
	volumes   []manager.VolumeStatus
	drivers   []manager.DriverStatus
	claims    []server.ClaimStatus
	snapshots []server.SnapshotStatus
	groups    []server.GroupSnapshotStatus
	pvs       []server.PVStatus
	problems  []server.Problem
	sockets   []server.SocketStatus
	notReady  []string
	cluster   bool // the daemon runs for an API server
}

const (
	nfs      = state.DriverName("nfs.example.com")
	emptyDir = state.DriverName("kubernetes.io/empty-dir")
	webUID   = state.PodUID("11111111-2222-3333-4444-555555555555")
)

// scenes are the nodes that scripts can name.
var scenes = map[string]func(now time.Time) scene{
	"empty": func(time.Time) scene {
		return scene{notReady: []string{"source file: /etc/manifests has not been read yet"}}
	},
	"mounted": mounted,
	"stuck":   stuck,
	"leaving": leaving,
}

func mounted(now time.Time) scene {
	web := state.Pod{UID: webUID, Namespace: "default", Name: "web", ServiceAccount: "web"}
	data, cache := state.SharedID(nfs, "vol-1"), state.PodVolumeID(emptyDir, webUID, "cache")
	ok := state.Fact{Phase: state.Present}
	return scene{
		snapshots: []server.SnapshotStatus{
			{
				Namespace: "default", Name: "monday", Phase: "Ready", Ready: true, Claim: "data", Driver: nfs, Handle: "snap-1",
				Content: "snapcontent-1", RestoreBytes: 256 << 20, Created: now.Add(-time.Hour), DeletionPolicy: "Delete",
			},
			{Namespace: "default", Name: "tuesday", Phase: "Pending", Claim: "data", Reason: "claim default/data has no volume yet", Refused: true},
		},
		groups: []server.GroupSnapshotStatus{
			{
				Namespace: "default", Name: "shop", Phase: "Ready", Ready: true, Claims: []string{"data", "log"}, Driver: nfs,
				Snapshots: []string{"shop-data", "shop-log"}, Handle: "group-1", Content: "groupsnapcontent-1",
				Consistency: "frozen", DeletionPolicy: "Delete", Created: now.Add(-time.Hour),
			},
			{Namespace: "default", Name: "bank", Phase: "Pending", Reason: "no claim of namespace default has these labels", Refused: true},
		},
		pods: []manager.PodStatus{
			{Pod: web, Listed: true, Ready: true, Volumes: []manager.PodVolumeStatus{
				{
					Names: []string{"cache"}, ID: cache, Driver: emptyDir, Mode: state.Filesystem, Mounted: true,
					Phase: state.Present, HostPath: "/root/pods/web/cache",
				},
				{
					Names: []string{"data"}, ID: data, Driver: nfs, Claim: "default/data", Mode: state.Filesystem, Mounted: true,
					Phase: state.Present, HostPath: "/root/pods/web/data/mount", ReadOnly: true, SizeBytes: 256 << 20,
				},
			}},
			{Pod: state.Pod{UID: "other", Namespace: "shop", Name: "till"}, Listed: true, Ready: true},
		},
		volumes: []manager.VolumeStatus{
			{
				Volume: state.Volume{
					ID: cache, Spec: &state.Spec{Driver: emptyDir, Name: "cache", Builtin: true, Mode: state.Filesystem},
					Mounts: map[state.PodUID]state.Mount{webUID: {Fact: ok, MountSpec: state.MountSpec{
						Pod: web, Names: []string{"cache"}, Target: "/root/pods/web/cache",
					}}},
				},
				Wanted: []state.PodUID{webUID},
			},
			{
				Volume: state.Volume{
					ID: data, Needs: state.Needs{Stage: true}, Stage: ok, SizeBytes: 256 << 20,
					Spec: &state.Spec{
						Driver: nfs, Handle: "vol-1", Name: "pv-data", Claim: "default/data", Mode: state.Filesystem, FSType: "nfs4",
						AccessModes: []state.AccessMode{state.ReadWriteOnce, state.ReadOnlyMany}, StagePath: "/root/globalmount",
						Context: map[string]string{"server": "10.0.0.5"}, MountFlags: []string{"hard"},
						StageRef: state.SecretRef{Namespace: "kube", Name: "nfs-key"},
					},
					Mounts: map[state.PodUID]state.Mount{webUID: {Fact: ok, MountSpec: state.MountSpec{
						Pod: web, Names: []string{"data"}, Target: "/root/pods/web/data/mount", ReadOnly: true,
					}}},
				},
				Wanted: []state.PodUID{webUID},
			},
		},
		drivers: []manager.DriverStatus{
			{DriverInfo: manager.DriverInfo{Name: emptyDir, Builtin: true}, Up: true, Generation: 1, Volumes: 1, Since: now.Add(-3 * time.Hour)},
			{
				DriverInfo: manager.DriverInfo{
					Name: nfs, Endpoint: "/root/plugins/nfs/csi.sock", Version: "v4.11.0", NodeID: "n1", MaxVolumes: 8,
					Topology: map[string]string{"zone": "a"}, Capabilities: []string{"EXPAND_VOLUME", "STAGE_UNSTAGE_VOLUME"}, Stage: true,
				},
				Up: true, Generation: 2, Volumes: 1, Calls: 1, Since: now.Add(-14 * time.Minute),
			},
		},
		claims: []server.ClaimStatus{
			{
				Namespace: "default", Name: "data", Phase: "Bound", Volume: "pv-data", Driver: nfs, RequestedBytes: 200 << 20, CapacityBytes: 256 << 20,
				NodeBytes: 256 << 20, Class: "fast", AccessModes: []state.AccessMode{state.ReadWriteOnce}, Mode: state.Filesystem, ReclaimPolicy: "Delete",
			},
			{
				Namespace: "default", Name: "more", Phase: "Pending", Class: "fast", RequestedBytes: 3 << 29, Mode: state.Block,
				Retry: server.RetryStatus{Attempts: 2, Call: "CreateVolume", Code: "ResourceExhausted", Error: "pool is full"},
			},
			{Namespace: "shop", Name: "coins", Phase: "Pending", Reason: "StorageClass gold is not known"},
		},
		pvs: []server.PVStatus{{
			Name: "pv-data", Claim: "default/data", Driver: nfs, Handle: "vol-1", CapacityBytes: 256 << 20, Mode: state.Filesystem,
			AccessModes: []state.AccessMode{state.ReadWriteOncePod, "Odd"}, Status: "Bound",
		}},
	}
}

// stuck is mounted, except that Stage of the claim's volume fails.
func stuck(now time.Time) scene {
	s := mounted(now)
	r := state.Retry{
		Attempts: 4, Since: now.Add(-130 * time.Second), NotBefore: now.Add(100 * time.Hour), Call: "NodeStageVolume", Code: "Unavailable",
		Error: "connection\x1b[2Jrefused",
	}
	v := &s.volumes[1]
	v.Volume.Stage, v.Volume.Mounts = state.Fact{Phase: state.Entering, Failed: &r}, nil
	v.Held, v.Since = plan.Held{Step: plan.Stage, Reason: "waiting to try again after a failure"}, now.Add(-14*time.Minute)
	pv := &s.pods[0].Volumes[1]
	pv.Mounted, pv.Phase, pv.HostPath, pv.Step, pv.Retry, pv.BlockedBy, pv.Since = false, state.Absent, "", plan.Stage, r, v.Held.Reason, v.Since
	s.pods[0].Ready = false
	s.sockets = []server.SocketStatus{
		{Path: "/root/plugins_registry/smb-reg.sock", Driver: "smb.example.com", State: "refused", Problem: "version 0.3.0 is not supported"},
		{Path: "/root/plugins_registry/nfs-reg.sock", Driver: nfs, State: "registered"},
	}
	s.problems = []server.Problem{{Source: "file", File: "/etc/manifests/x.yaml", Line: 3, Message: "unknown field"}}
	return s
}

// leaving is mounted, but the pod has gone.
func leaving(now time.Time) scene {
	s := mounted(now)
	s.pods[0].Listed = false
	for i := range s.volumes {
		s.volumes[i].Wanted = nil
		s.volumes[i].Call, s.volumes[i].Since = plan.Op{Kind: plan.Unpublish, Pod: webUID}, now.Add(-10*time.Minute)
		s.pods[0].Volumes[i].Step, s.pods[0].Volumes[i].Since = plan.Unpublish, now.Add(-10*time.Minute)
		s.pods[0].Volumes[i].Mounted, s.pods[0].Volumes[i].Phase = false, state.Leaving
	}
	return s
}

// backend is the inside of a daemon, in memory.
type backend struct {
	mu      sync.Mutex // guards the fields below
	scene   scene
	changed chan struct{}
	asked   []string
	err     error
	// If looked is not nil, the deletion of a claim waits until Explain was called.
	looked chan struct{}
}

func (b *backend) show(s scene) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scene = s
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *backend) now() scene {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.scene
}

func (b *backend) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// podFeed sends all pods at each change.
type podFeed struct {
	*backend
	mu   sync.Mutex // guards the fields below
	told map[state.PodUID]state.Pod
	next <-chan struct{}
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
	changed = f.Pods()
	now := map[state.PodUID]state.Pod{}
	for _, p := range changed {
		now[p.Pod.UID] = p.Pod
		delete(f.told, p.Pod.UID)
	}
	gone = slices.Collect(maps.Values(f.told))
	f.told = now
	return changed, gone
}

func (*podFeed) Close() {}

func (b *backend) Volumes() []manager.VolumeStatus { return b.now().volumes }
func (b *backend) Pods() []manager.PodStatus       { return b.now().pods }
func (b *backend) Drivers() []manager.DriverStatus { return b.now().drivers }
func (b *backend) Claims() []server.ClaimStatus    { return b.now().claims }
func (b *backend) Schedules(context.Context) ([]server.ScheduleStatus, error) {
	if len(b.now().snapshots) == 0 {
		return nil, nil
	}
	return []server.ScheduleStatus{{
		Namespace: "default", Name: "data-daily", Claim: "data", Every: "daily", Keep: 7, Snapshots: []string{"monday"}, Next: fixed.Add(time.Hour),
		Left: []string{"friday"}, Note: "1 of another volume left",
	}}, nil
}

func (b *backend) SetSchedule(_ context.Context, r server.ScheduleRequest) (note string, err error) {
	if r.Keep == 1 && !r.DeleteBeyond {
		return "", fmt.Errorf("%w: to keep fewer deletes snapshots, 2 of them", server.ErrConflict)
	}
	if r.DeleteBeyond {
		note = "2 beyond 1 are deleted: sunday, monday"
	}
	return note, b.ask(fmt.Sprintf("schedule %s/%s of %s %s %d %s", r.Namespace, r.Name, r.Claim, r.Every, r.Keep, r.Class))
}

func (b *backend) RemoveSchedule(_ context.Context, namespace, name string) error {
	return b.ask("delete schedule " + namespace + "/" + name)
}

func (b *backend) Snapshots() []server.SnapshotStatus { return b.now().snapshots }
func (b *backend) GroupSnapshots() []server.GroupSnapshotStatus {
	return b.now().groups
}
func (b *backend) PersistentVolumes() []server.PVStatus { return b.now().pvs }
func (b *backend) Problems() []server.Problem           { return b.now().problems }
func (b *backend) Sockets() []server.SocketStatus       { return b.now().sockets }

func (b *backend) Blocked() string { return "" }

func (b *backend) Degraded() []string { return nil }

func (b *backend) NotReady() []string {
	select {
	case b.looked <- struct{}{}:
	default: // nil, or already closed
	}
	return b.now().notReady
}

func (b *backend) Volume(id state.VolumeID) (manager.VolumeStatus, bool) {
	for _, v := range b.now().volumes {
		if v.Volume.ID == id {
			return v, true
		}
	}
	return manager.VolumeStatus{}, false
}

func (b *backend) ask(what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, what)
	return b.err
}

func (b *backend) Apply(_ context.Context, m server.Manifest) ([]server.Applied, error) {
	if m.Check {
		return nil, b.ask(fmt.Sprintf("check %s %q", filepath.Base(m.Name), m.Data))
	}
	err := b.ask(fmt.Sprintf("apply %s %q", filepath.Base(m.Name), m.Data))
	if bytes.HasPrefix(m.Data, []byte("#")) {
		return nil, err
	}
	switch string(m.Data) {
	case "kind: PersistentVolumeClaim\n":
		a := server.Applied{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data", Result: "created", Warning: "claim default/data: StorageClass fast not found"}
		return []server.Applied{a}, err
	case "kind: Token\n":
		return []server.Applied{{Kind: "Pod", Namespace: "default", Name: "web", Result: "created", Warning: "pod default/web: volume kube-api-access: no issuer"}}, err
	case "kind: StorageClass\n":
		return []server.Applied{{Kind: "StorageClass", Name: "fast", Result: "created"}}, err
	}
	applied := []server.Applied{
		{Kind: "Pod", Namespace: "default", Name: "web", Result: "created"},
		{Kind: "secret", Namespace: "kube", Name: "key", Result: "unchanged"},
	}
	if m.SkipUnknown {
		applied = append(applied, server.Applied{Kind: "DaemonSet", Name: "d", Result: "skipped"}, server.Applied{Kind: "Role", Name: "r", Result: "skipped"})
	}
	return applied, err
}

func (b *backend) Withdraw(_ context.Context, m server.Manifest) ([]server.Applied, error) {
	return []server.Applied{
		{Kind: "pod", Namespace: "default", Name: "web", Result: "deleted"},
		{Kind: "pvc", Namespace: "default", Name: "data", Result: "kept", Note: "only delete pvc deletes data"},
	}, b.ask("withdraw " + filepath.Base(m.Name))
}

func (b *backend) DeletePod(_ context.Context, ns, name string) error {
	return b.ask("delete pod " + ns + "/" + name)
}

func (b *backend) DeleteClaim(ctx context.Context, _ audit.By, d server.ClaimDeletion) (note string, err error) {
	if b.looked != nil {
		select {
		case <-b.looked:
		case <-ctx.Done():
		}
	}
	if d.Name == "retained" && !d.Data {
		note = "its volume pvc-1 is kept"
	}
	if strings.HasPrefix(d.Name, "nosuch") {
		return "", fmt.Errorf("%w: claim %s", server.ErrNotFound, d.Name)
	}
	return note, b.ask(strings.TrimSpace("delete claim " + d.Namespace + "/" + d.Name + " " + d.Reason))
}

func (b *backend) DeleteSnapshot(_ context.Context, _ audit.By, d server.SnapshotDeletion) (note string, err error) {
	if d.Name == "retained" && !d.Data {
		note = "it is kept"
	}
	what := "snapshot"
	if d.Group {
		what = "groupsnapshot"
	}
	return note, b.ask(strings.TrimSpace("delete " + what + " " + d.Namespace + "/" + d.Name + " " + d.Reason))
}

func (b *backend) AllCalls() []manager.EndedCall {
	var ids []state.VolumeID
	for _, v := range b.Volumes() {
		ids = append(ids, v.Volume.ID)
	}
	return b.Calls(ids...)
}

// Calls returns one failure and one success of each volume.
func (b *backend) Calls(ids ...state.VolumeID) []manager.EndedCall {
	var out []manager.EndedCall
	for _, id := range ids {
		out = append(out,
			manager.EndedCall{Volume: id, Driver: "d.example", Op: plan.Stage, Began: fixed, TookNanos: time.Second, Code: "Internal", Error: "NodeStageVolume: Internal: no\tdisk", Outcome: "unknown"},
			manager.EndedCall{Volume: id, Driver: "d.example", Op: plan.Stage, Began: fixed.Add(2 * time.Second), TookNanos: time.Millisecond})
	}
	return out
}

// daemon serves b at socket until stop is called.
func daemon(socket string, b *backend, now func() time.Time) (stop func() error, err error) {
	s, err := server.New(context.Background(), server.Config{
		Socket: socket, Volumes: b, FollowPods: func() server.PodFeed { return &podFeed{backend: b, next: b.Changed()} }, Objects: b, Claims: b, Health: b, Trace: b,
		Version: server.Version{Version: "v1.2.3", Go: "go1.26", Node: "n1", Cluster: b.now().cluster}, Logger: slog.New(slog.DiscardHandler), Now: now,
		Operator: b, Drainer: b, Named: b, Schedules: b, Storage: b,
		Catalog: func(kind string) []server.Object {
			return map[string][]server.Object{
				"Pod":                   {{Kind: "Pod", Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}, {Kind: "Pod", Namespace: "shop", Name: "till"}},
				"PersistentVolumeClaim": {{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data", Labels: map[string]string{"app": "db"}}},

				"StorageClass": {{Kind: "StorageClass", Name: "fast", About: "nfs.example.com, Delete, default"}},
				"Secret":       {{Kind: "Secret", Namespace: "default", Name: "login", Keys: []string{"password"}, About: "Opaque, 1 key"}},
			}[kind]
		},
		Lacks: func(kind state.DriverName) []string {
			return map[state.DriverName][]string{"kubernetes.io/nfs": {"mount.nfs"}}[kind]
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func newBackend(s scene) *backend { return &backend{scene: s, changed: make(chan struct{})} }

var fixed = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is the program beside a daemon that shows a scene at a fixed time.
type rig struct {
	*program
	backend        *backend
	stdout, stderr strings.Builder
}

func newRig(t *testing.T, s scene) *rig {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	now := func() time.Time { return fixed }
	r := &rig{backend: newBackend(s)}
	stop, err := daemon(socket, r.backend, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	r.program = &program{stdin: strings.NewReader(""), stdout: &r.stdout, stderr: &r.stderr, now: now, euid: func() int { return 0 }}
	t.Cleanup(func() { r.socket = "" })
	r.socket = socket
	return r
}

// do runs the program with args and returns its exit code.
func (r *rig) do(t *testing.T, args ...string) int {
	t.Helper()
	r.stdout.Reset()
	r.stderr.Reset()
	return r.run(t.Context(), append([]string{"--socket", r.socket}, args...))
}

// CallsNamed returns one volume that is gone.
func (b *backend) CallsNamed(name string) []state.VolumeID {
	if name == "gone" {
		return []state.VolumeID{"d^gone"}
	}
	return nil
}

// CallsOfPod returns one volume of a pod that is gone.
func (b *backend) CallsOfPod(name string) []state.VolumeID {
	if name == "default/gone" {
		return []state.VolumeID{"d^gone"}
	}
	return nil
}

func (b *backend) NamedVolumes(context.Context) ([]server.NamedVolume, error) {
	return []server.NamedVolume{{
		Name: "shop_db", FrontEnd: "docker", Claim: "default/shop-db", Pod: "default/docker.shop-db", Created: fixed,
		Mountpoint: "/root/db", Uses: map[string]int{"c1": 1}, Holders: []string{"container c0ffee"},
	}}, nil
}

// waitingVolume is the name of a volume whose driver is away.
const waitingVolume = "shop/waiting"

func (b *backend) NamedVolume(ctx context.Context, name string) (server.NamedVolume, error) {
	if name == waitingVolume {
		return server.NamedVolume{Name: name, Waits: []string{"driver nfs.example.com is not registered"}}, nil
	}
	all, err := b.NamedVolumes(ctx)
	if name != all[0].Name {
		return server.NamedVolume{}, fmt.Errorf("%w: volume %s", server.ErrNotFound, name)
	}
	return all[0], err
}

func (b *backend) CreateNamed(context.Context, server.NamedRequest) error { return nil }

// ChangeNamed refuses what the volume's name or an option says.
func (b *backend) ChangeNamed(ctx context.Context, name string, c server.NamedChange) error {
	if c.Options["size"] == "1Ki" {
		return fmt.Errorf("%w: option size: want at least 1Mi", server.ErrInvalid)
	}
	_, err := b.NamedVolume(ctx, name)
	return err
}

// MountNamed does not mount the volume that waits.
func (b *backend) MountNamed(ctx context.Context, _, name string) (string, error) {
	if name == waitingVolume {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "/root/db", nil
}

func (b *backend) KeptNamed(context.Context) ([]server.NamedVolume, error) {
	return []server.NamedVolume{{
		Name: "shop_db.removed-20261128-135526", FrontEnd: "docker", Claim: "default/shop-db.removed-20261128-135526", Was: "shop_db",
		Removed: fixed,
	}}, nil
}

func (b *backend) RestoreNamed(_ context.Context, name, as string) (server.NamedVolume, error) {
	if name != "shop_db.removed-20261128-135526" {
		return server.NamedVolume{}, fmt.Errorf("%w: no such volume is kept under this name", server.ErrNotFound)
	}
	return server.NamedVolume{Name: cmp.Or(as, "shop_db")}, nil
}

func (b *backend) RemoveNamed(context.Context, server.NamedRemoval) (string, error) {
	return "its volume is kept", nil
}
