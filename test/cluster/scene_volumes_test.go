//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// two returns a pod for the node with the volumes a and b of the claims. b is a device if
// device is true.
func two(node, pod, claims string, device bool) *corev1.Pod {
	a, b := fromClaim(claims+"-a"), fromClaim(claims+"-b")
	a.Name, b.Name = "a", "b"
	p := podWith(node, pod, a, b)
	if device {
		c := &p.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = c.VolumeMounts[:1], []corev1.VolumeDevice{{Name: "b", DevicePath: "/dev/b"}}
	}
	return p
}

// A pod with two volumes, both file systems or one of them a device, is made again on its
// node or on another one. Both volumes have what it wrote.
func TestScenariosOfTwoVolumes(t *testing.T) {
	t.Parallel()
	here, there := asNode(t, "scene-two-a"), asNode(t, "scene-two-b")
	block := corev1.PersistentVolumeBlock
	for name, tc := range map[string]struct{ device, moves bool }{
		// Scenarios: U-122.
		"files": {},
		// Scenarios: U-123.
		"files-move": {moves: true},
		// Scenarios: U-124.
		"device": {device: true},
		// Scenarios: U-125.
		"device-move": {device: true, moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShared(t, "two-"+name+".test", map[string]string{here.name: "east", there.name: "east"}, "csi-provisioner", "csi-attacher")
			first, second := here.in(t), here.in(t)
			s.serve(first)
			if tc.moves {
				second = there.in(t)
				s.serve(second)
			}
			claims := "two-" + name
			s.wish(claims+"-a", nil)
			s.wish(claims+"-b", func(c *corev1.PersistentVolumeClaim) {
				if tc.device {
					c.Spec.VolumeMode = &block
				}
			})
			path := func(n *node, pod, volume string) string {
				if volume == "b" && tc.device {
					return n.at(pod, volume)
				}
				return filepath.Join(n.at(pod, volume), "f")
			}
			createPod(t, two(first.name, claims, claims, tc.device))
			for _, volume := range []string{"a", "b"} {
				f, err := os.OpenFile(path(first, claims, volume), os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o600)
				must(t, err)
				_, err = f.WriteString("of " + volume)
				must(t, err)
				must(t, f.Close())
			}
			deletePod(t, claims)
			createPod(t, two(second.name, claims+"-2", claims, tc.device))
			for _, volume := range []string{"a", "b"} {
				f, err := os.Open(path(second, claims+"-2", volume))
				must(t, err)
				got := make([]byte, 4)
				if _, err := f.Read(got); err != nil || string(got) != "of "+volume {
					t.Errorf("volume %s has %q, %v", volume, got, err)
				}
				must(t, f.Close())
			}
			deletePod(t, claims+"-2")
			second.eventually("nothing is attached, staged or published", func() bool { return len(s.model().Left()) == 0 })
			s.unclaim(second, claims+"-a")
			s.unclaim(second, claims+"-b")
		})
	}
}

// What external-provisioner and the scheduler decide about a claim reaches the node.
func TestScenariosOfProvisioning(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-made")
	for name, test := range map[string]func(*testing.T){
		// Scenarios: U-86.
		"exhausted": func(t *testing.T) {
			c := attached("made-exhausted.test", "csi-provisioner")
			c.script.Faults = []csistrict.Fault{{ID: "full", Call: "CreateVolume", Code: uint32(codes.ResourceExhausted), Effect: csistrict.EffectNone, Times: 1}}
			s := begin(t, n, c)
			s.wish("made-exhausted", nil)
			s.up("made-exhausted", fromClaim("made-exhausted"))
			s.down("made-exhausted")
			s.unclaim(s.n, "made-exhausted")
		},
		// Scenarios: U-114.
		"inline": func(t *testing.T) {
			yes := true
			s := begin(t, n, unattached("made-inline.test", func(o *storagev1.CSIDriverSpec) {
				o.PodInfoOnMount, o.VolumeLifecycleModes = &yes, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
			}))
			s.up("made-inline", s.inline("a"), s.inline("b"), s.inline("c"))
			if got := len(s.model().Volumes); got != 3 {
				t.Errorf("%d volumes, want 3", got)
			}
			s.down("made-inline")
		},
		// Scenarios: U-131.
		"options": func(t *testing.T) {
			want := []string{"noatime", "nodev"}
			c := attached("made-options.test", "csi-provisioner")
			c.class = func(o *storagev1.StorageClass) { o.MountOptions = want }
			s := begin(t, n, c)
			s.wish("made-options", nil)
			s.up("made-options", fromClaim("made-options"))
			stage := asked[csi.NodeStageVolumeRequest](s.shared, "NodeStageVolume")[0].GetVolumeCapability().GetMount().GetMountFlags()
			publish := s.publication().GetVolumeCapability().GetMount().GetMountFlags()
			if !slices.Equal(stage, want) || !slices.Equal(publish, want) {
				t.Errorf("staged with %v, published with %v, want %v", stage, publish, want)
			}
			s.down("made-options")
			s.unclaim(s.n, "made-options")
		},
		// Scenarios: U-140.
		"taken": func(t *testing.T) {
			_, err := control.client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "made-first"}, Value: 1000}, metav1.CreateOptions{})
			must(t, err)
			s := begin(t, n, attached("made-taken.test", "csi-provisioner"))
			s.wish("made-taken", func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			})
			s.up("made-taken", fromClaim("made-taken"))
			p := podWith(n.name, "made-taken-2", fromClaim("made-taken"))
			p.Spec.PriorityClassName = "made-first"
			createPod(t, p)
			s.n.mounted("made-taken-2") // the strict driver checks that the first pod no longer has the volume
			s.down("made-taken-2")
			s.unclaim(s.n, "made-taken")
		},
		// Scenarios: U-165.
		"forbidden": func(t *testing.T) {
			c := attached("made-forbidden.test", "csi-provisioner")
			c.class = func(o *storagev1.StorageClass) {
				o.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "topology." + c.name + "/zone", Values: []string{"west"}}}}}
			}
			s := begin(t, n, c)
			s.wish("made-forbidden", nil)
			createPod(t, podWith(n.name, "made-forbidden", fromClaim("made-forbidden")))
			s.n.eventually("the pod is not placed", func() bool {
				p, err := control.client.CoreV1().Pods("default").Get(t.Context(), "made-forbidden", metav1.GetOptions{})
				must(t, err)
				return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
					return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "available persistent volumes")
				})
			})
			if got := s.model().Volumes; len(got) > 0 {
				t.Errorf("made: %v", got)
			}
			deletePod(t, "made-forbidden")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}
