package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// The state of the expansion in the claim's status decides whether the node expands the volume.
//
// Items: I02, I06, I11, I12, I13, I14, I16, I18, N-95.
// Sidecars: SR-02, SR-15.
func TestTheClaimSaysWhetherTheNodeExpands(t *testing.T) {
	quantity := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
	}
	type claim = corev1.PersistentVolumeClaim
	status := func(s corev1.ClaimResourceStatus, allocated string) func(*claim) {
		return func(c *claim) {
			c.Status.AllocatedResources = quantity(allocated)
			if s != "" {
				c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: s}
			}
		}
	}
	for name, tc := range map[string]struct {
		change     func(*claim)
		have       string // in the claim's status
		many       bool   // access mode ReadWriteMany
		size       string
		grown      bool
		notBecause string
	}{
		"an old resizer":           {have: "512Mi", size: "1Gi"},
		"switched off: asked only": {have: "1Gi", size: "1Gi", change: func(c *claim) { c.Spec.Resources.Requests = quantity("9Gi") }},
		"pending":                  {have: "512Mi", size: "1Gi", change: status(corev1.PersistentVolumeClaimNodeResizePending, "1Gi")},
		"pending, to less":         {have: "512Mi", size: "768Mi", change: status(corev1.PersistentVolumeClaimNodeResizePending, "768Mi")},
		"in progress":              {have: "512Mi", size: "2Gi", change: status(corev1.PersistentVolumeClaimNodeResizeInProgress, "2Gi")},
		"done":                     {have: "1Gi", size: "1Gi", grown: true, change: status("", "1Gi")},
		"done, shared":             {have: "1Gi", size: "1Gi", many: true, change: status("", "1Gi")},
		"done, shared, by word": {have: "1Gi", size: "1Gi", many: true, grown: true, change: func(c *claim) {
			status("", "1Gi")(c)
			c.Annotations = map[string]string{"volume.kubernetes.io/node-expansion-not-required": "true"}
		}},
		"not the node's turn yet": {have: "512Mi", size: "1Gi", change: status("", "1Gi"), notBecause: "waiting for claim default/data: status.allocatedResourceStatuses: found none, want NodeResizePending"},
		"the controller's turn":   {have: "512Mi", size: "1Gi", change: status(corev1.PersistentVolumeClaimControllerResizeInProgress, "1Gi"), notBecause: "found ControllerResizeInProgress, want"},
		"infeasible":              {have: "512Mi", size: "1Gi", change: status(corev1.PersistentVolumeClaimNodeResizeInfeasible, "1Gi"), notBecause: "found NodeResizeInfeasible; ask for another size"},
	} {
		w := read(t, "testdata/base.yaml")
		w.claim().Status.Capacity = quantity(tc.have)
		if tc.change != nil {
			tc.change(w.claim())
		}
		if tc.many {
			w.volume().Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}
		got := w.only(t)
		size, have := resource.MustParse(tc.size), resource.MustParse(tc.have)
		if got.SizeBytes != size.Value() || got.HaveBytes != have.Value() || got.Grown != tc.grown ||
			(got.NoGrow == "") != (tc.notBecause == "") || !strings.Contains(got.NoGrow, tc.notBecause) {
			t.Errorf("%s: got size %d, have %d, grown %v, not because %q", name, got.SizeBytes, got.HaveBytes, got.Grown, got.NoGrow)
		}
	}
}

// Without a cluster, a request that was lowered again ends an expansion that the node cannot do.
//
// Sidecars: SR-04.
func TestARequestLoweredAgain(t *testing.T) {
	for request, want := range map[string]int64{"8Ki": 8192, "6Ki": 6144, "1Ki": 4096} {
		w := read(t, "testdata/base.yaml")
		w.volume().Annotations = map[string]string{resolve.NodeSizeAnnotation: "4096"}
		w.volume().Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Ki")}
		w.claim().Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(request)}
		if got := w.only(t); got.SizeBytes != want || got.HaveBytes != 4096 || got.Grown != (want == 4096) {
			t.Errorf("request %s: size %d, have %d, grown %v", request, got.SizeBytes, got.HaveBytes, got.Grown)
		}
	}
}

// Without a cluster, a node expands a volume that csi-volmgr made only if its driver's controller asked for that, and
// one whose PersistentVolume a manifest has as far as that says.
//
// Sidecars: SR-02.
func TestANodeExpandsWhatItsDriverAskedFor(t *testing.T) {
	for have, grown := range map[string]bool{"8192": true, "4096": false, "": false} {
		w := read(t, "testdata/base.yaml")
		if have != "" {
			w.volume().Annotations = map[string]string{resolve.NodeSizeAnnotation: have}
		}
		w.volume().Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Ki")}
		w.claim().Spec.Resources.Requests = w.volume().Spec.Capacity
		if got := w.only(t); got.SizeBytes != 8192 || got.Grown != grown {
			t.Errorf("%q on the node: size %d, grown %v", have, got.SizeBytes, got.Grown)
		}
	}
}
