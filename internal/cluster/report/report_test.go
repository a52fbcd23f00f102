package report_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// world is a reporter, a server, and a manager whose wishes the test sets.
type world struct {
	t        *testing.T
	server   *fakeapi.Server
	reporter *report.Reporter

	mu      sync.Mutex
	used    []state.VolumeID
	mounted bool // each volume in use is mounted
	synced  bool
	marked  []state.VolumeID
	changed chan struct{}
	ask     ask
	// unsure: more volumes may be in use.
	unsure bool
	// settling is called while the manager takes over the marked volumes.
	settling func()
	// lags: the watch of the Node does not show the reporter's own writes.
	lags bool
}

// watching shows the reporter its own writes of the Node, as the watch does.
type watching struct {
	next http.RoundTripper
	w    *world
}

func (r watching) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(q)
	n := &corev1.Node{}
	r.w.mu.Lock()
	shows := !r.w.lags
	r.w.mu.Unlock()
	if shows && err == nil && q.Method == http.MethodPatch && strings.HasSuffix(q.URL.Path, "/nodes/n1/status") && r.w.server.Get("nodes", "n1", n) {
		r.w.reporter.Node(n)
	}
	return answer, err
}

func (w *world) AttachedInUse() (used []state.InUse, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.used {
		used = append(used, state.InUse{ID: id, Name: "kubernetes.io/csi/" + string(id)})
	}
	return used, !w.unsure
}

func (w *world) ReconcilerStatesHasBeenSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

func (w *world) MarkVolumesAsReportedInUse(ids []state.VolumeID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marked = slices.Clone(ids)
}

func (w *world) Settle(context.Context) error {
	if w.settling != nil {
		w.settling()
	}
	return nil
}
func (w *world) Changed() <-chan struct{} { w.mu.Lock(); defer w.mu.Unlock(); return w.changed }

// use sets the volumes in use.
func (w *world) use(ids ...state.VolumeID) {
	w.mu.Lock()
	w.used, w.synced = ids, true
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
}

func (w *world) marks() []state.VolumeID { w.mu.Lock(); defer w.mu.Unlock(); return w.marked }

func start(t *testing.T, opts ...func(*report.Config)) *world {
	t.Helper()
	w := &world{t: t, server: fakeapi.New(), changed: make(chan struct{})}
	core, storage := w.server.Clients(func(next http.RoundTripper) http.RoundTripper { return watching{next, w} })
	c := report.Config{
		Core: core, Storage: storage, NodeName: "n1", Volumes: w, Limit: w.limit,
		Mounted: func(state.VolumeID) bool { w.mu.Lock(); defer w.mu.Unlock(); return w.mounted },
		Period:  func(state.DriverName) time.Duration { w.mu.Lock(); defer w.mu.Unlock(); return w.ask.period },
	}
	for _, o := range opts {
		o(&c)
	}
	w.reporter = report.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.reporter.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return w
}

// seeNode shows the reporter the Node on the server.
func (w *world) seeNode() *corev1.Node {
	n := &corev1.Node{}
	if !w.server.Get("nodes", "n1", n) {
		w.t.Fatal("no node")
	}
	w.reporter.Node(n)
	synctest.Wait()
	return n
}

func node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"zone": "a"}}}
}

func csiNode(t *testing.T, s *fakeapi.Server) string {
	t.Helper()
	c := &storagev1.CSINode{}
	s.Get("csinodes", "n1", c)
	b, err := json.Marshal(c.Spec.Drivers)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Items: J01, J04, J10, J14, J11, N-14, N-90.
func TestDriversAreInCSINodeAndNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(node())
		d := report.Driver{Name: "d.test", NodeID: "id-1", Topology: map[string]string{"rack": "7", "zone": "a"}, MaxVolumes: 1 << 40}
		w.reporter.DriverUp(d)
		w.seeNode()
		n := w.seeNode()
		if n.Annotations[report.AttachAnnotation] != "true" || n.Annotations[report.NodeIDAnnotation] != `{"d.test":"id-1"}` || n.Labels["rack"] != "7" {
			t.Errorf("node: %v %v", n.Annotations, n.Labels)
		}
		if got, want := csiNode(t, w.server), `[{"name":"d.test","nodeID":"id-1","topologyKeys":["rack","zone"],"allocatable":{"count":2147483647}}]`; got != want {
			t.Errorf("CSINode: got %s, want %s", got, want)
		}
		c := &storagev1.CSINode{}
		w.server.Get("csinodes", "n1", c)
		if len(c.OwnerReferences) != 1 || c.OwnerReferences[0].UID != "u1" {
			t.Errorf("owners: %v", c.OwnerReferences)
		}
		w.server.Took()
		w.seeNode()
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("nothing changed, and still: %q", took)
		}
		d.MaxVolumes = 0
		w.reporter.DriverUp(d)
		synctest.Wait()
		if got, want := csiNode(t, w.server), `[{"name":"d.test","nodeID":"id-1","topologyKeys":["rack","zone"]}]`; got != want {
			t.Errorf("CSINode: got %s, want %s", got, want)
		}
		w.reporter.DriverDown("d.test")
		synctest.Wait()
		n = w.seeNode()
		if _, there := n.Annotations[report.NodeIDAnnotation]; there || n.Labels["rack"] != "7" || csiNode(t, w.server) != "null" {
			t.Errorf("after it went: %v %v %s", n.Annotations, n.Labels, csiNode(t, w.server))
		}
		w.server.Took()
		w.reporter.DriverDown("d.test")
		w.seeNode()
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("it went once more: %q", took)
		}
	})
}

// The reporter leaves out a driver that contradicts the Node's labels, or whose id is missing or too long, and says
// why; it writes the others.
//
// Items: J11, N-90.
func TestDriverThatContradictsIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(node())
		w.reporter.DriverUp(report.Driver{Name: "bad.test", NodeID: "x", Topology: map[string]string{"zone": "b"}})
		w.reporter.DriverUp(report.Driver{Name: "none.test"})
		w.reporter.DriverUp(report.Driver{Name: "long.test", NodeID: strings.Repeat("x", 257)})
		w.reporter.DriverUp(report.Driver{Name: "good.test", NodeID: "y", Topology: map[string]string{"zone": "a"}})
		w.seeNode()
		n := w.seeNode()
		if got, want := csiNode(t, w.server), `[{"name":"good.test","nodeID":"y","topologyKeys":["zone"]}]`; got != want {
			t.Errorf("CSINode: got %s, want %s", got, want)
		}
		if n.Labels["zone"] != "a" || n.Annotations[report.NodeIDAnnotation] != `{"good.test":"y"}` {
			t.Errorf("node: %v %v", n.Annotations, n.Labels)
		}
		p := w.reporter.Findings()
		if len(p) != 1 || !strings.Contains(p[0].Text, "driver bad.test: NodeGetInfo: accessible_topology: found zone=b, want a") || !strings.Contains(p[0].Text, "driver none.test: NodeGetInfo: node_id") ||
			!strings.Contains(p[0].Text, "driver long.test: NodeGetInfo: node_id: found 257 bytes, want at most 256") {
			t.Errorf("problems: %v", p)
		}
	})
}

// Items: J12.
func TestCSINodeOfAnEarlierNodeIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(node(), &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "earlier"}}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "lost.test", NodeID: "z"}}},
		})
		w.reporter.DriverUp(report.Driver{Name: "d.test", NodeID: "id-1"})
		w.seeNode()
		if got, want := csiNode(t, w.server), `[{"name":"d.test","nodeID":"id-1","topologyKeys":null}]`; got != want {
			t.Errorf("CSINode: got %s, want %s", got, want)
		}
		c := &storagev1.CSINode{}
		w.server.Get("csinodes", "n1", c)
		if len(c.OwnerReferences) != 1 || c.OwnerReferences[0].UID != "u1" {
			t.Errorf("its owners: %v", c.OwnerReferences)
		}
	})
}

// The reporter does not write a claim whose expansion another program has already ended.
//
// Items: I13.
func TestAClaimThatSaysItAlreadyIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		c := grown(corev1.PersistentVolumeClaimNodeResizePending)
		c.Status.Capacity, c.Status.Conditions, c.Status.AllocatedResourceStatuses = c.Status.AllocatedResources, nil, nil
		w.server.Put(c)
		w.server.Took()
		w.reporter.Expanded(data, 2<<30)
		time.Sleep(10 * time.Minute)
		for _, took := range w.server.Took() {
			if !strings.HasPrefix(took, "get ") {
				t.Errorf("%s", took)
			}
		}
	})
}

// After a restart the reporter does not write a CSINode that is already right.
//
// Items: J10.
func TestACSINodeThatSaysItAlreadyIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		count := int32(7)
		w.server.Put(node(), &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}}},
			Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d.test", NodeID: "id-1", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}},
		})
		w.server.Took()
		w.reporter.DriverUp(report.Driver{Name: "d.test", NodeID: "id-1", MaxVolumes: 7})
		w.seeNode()
		for _, took := range w.server.Took() {
			if strings.Contains(took, "csinodes") && !strings.HasPrefix(took, "get ") {
				t.Errorf("%s", took)
			}
		}
	})
}

// grown returns a claim that an external-resizer has made 2 GiB large.
func grown(status corev1.ClaimResourceStatus) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}
	c.Spec.VolumeName = "pv"
	c.Status.Capacity = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}, {Type: "Other", Status: corev1.ConditionTrue},
	}
	if status != "" {
		c.Status.AllocatedResources = corev1.ResourceList{"storage": resource.MustParse("2Gi")}
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": status}
	}
	return c
}

// With allocatedResources and, as an old external-resizer does, without; and with as many attempts as it takes.
//
// Items: I16, I01, I02.
func TestExpansionEndsInTheClaimsStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		status corev1.ClaimResourceStatus
		bytes  int64
		want   string
	}{
		"pending":          {corev1.PersistentVolumeClaimNodeResizePending, 2 << 30, "2Gi"},
		"in progress":      {corev1.PersistentVolumeClaimNodeResizeInProgress, 2 << 30, "2Gi"},
		"old resizer":      {"", 2 << 30, "2Gi"},
		"grows further":    {corev1.PersistentVolumeClaimNodeResizePending, 3 << 29, "1Gi"},
		"controller's":     {corev1.PersistentVolumeClaimControllerResizeInProgress, 2 << 30, "1Gi"},
		"nothing happened": {"", 1 << 30, "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t)
				w.server.Put(grown(tc.status))
				w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusInternalServerError} })
				w.reporter.Expanded(data, tc.bytes)
				time.Sleep(10 * time.Minute)
				w.server.Fail(nil)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				var c corev1.PersistentVolumeClaim
				w.server.Get("persistentvolumeclaims", "default/c", &c)
				if got := c.Status.Capacity.Storage().String(); got != tc.want {
					t.Errorf("capacity: got %s, want %s", got, tc.want)
				}
				_, left := c.Status.AllocatedResourceStatuses["storage"]
				ended := len(c.Status.Conditions) == 1 && c.Status.Conditions[0].Type == "Other" && !left
				if ended != (tc.want == "2Gi") {
					t.Errorf("conditions %v, resource status left: %v", c.Status.Conditions, left)
				}
				if p := w.reporter.Findings(); len(p) > 0 {
					t.Errorf("problems: %v", p)
				}
			})
		})
	}
}
