package resolve_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestTheLimitOfAnEmptyDirIsTheSmallerOfItsOwnAndThePods: the pod's limit of memory, or of the node's disk, bounds
// each volume of that medium.
// Items: B22, M02.
func TestTheLimitOfAnEmptyDirIsTheSmallerOfItsOwnAndThePods(t *testing.T) {
	const one = "[{name: a, resources: {limits: {memory: 1Gi, ephemeral-storage: 2Gi}}, volumeMounts: [{name: v, mountPath: /v}]}]"
	two := strings.Replace(one, "}]}]", "}]}, {name: b, resources: {limits: {memory: 1Gi}}}]", 1)
	open := strings.Replace(one, "}]}]", "}]}, {name: b}]", 1)
	for _, c := range []struct{ name, containers, more, emptyDir, want string }{
		{"memory, none", "[{name: a, volumeMounts: [{name: v, mountPath: /v}]}]", "", "{medium: Memory}", ""},
		{"memory, none, in a cluster", "[{name: a, volumeMounts: [{name: v, mountPath: /v}]}]", "", "{medium: Memory}", "8Gi"},
		{"memory, its own, in a cluster", "[{name: a, volumeMounts: [{name: v, mountPath: /v}]}]", "", "{medium: Memory, sizeLimit: 3Gi}", "3Gi"},
		{"memory, its own", "[{name: a, volumeMounts: [{name: v, mountPath: /v}]}]", "", "{medium: Memory, sizeLimit: 3Gi}", "3Gi"},
		{"memory, the node's", "[{name: a, volumeMounts: [{name: v, mountPath: /v}]}]", "", "{medium: Memory, sizeLimit: 100Gi}", "8Gi"},
		{"memory, the pod's", one, "", "{medium: Memory}", "1Gi"},
		{"memory, the pod's is smaller", one, "", "{medium: Memory, sizeLimit: 3Gi}", "1Gi"},
		{"memory, its own is smaller", one, "", "{medium: Memory, sizeLimit: 5Mi}", "5Mi"},
		{"memory, zero is none", one, "", "{medium: Memory, sizeLimit: 0}", "1Gi"},
		{"memory, containers together", two, "", "{medium: Memory, sizeLimit: 3Gi}", "2Gi"},
		{"memory, a container without a limit", open, "", "{medium: Memory, sizeLimit: 3Gi}", "3Gi"},
		{"memory, the pod's own limit", two, "resources: {limits: {memory: 1536Mi}}", "{medium: Memory, sizeLimit: 3Gi}", "1536Mi"},
		{"memory, overhead", two, "overhead: {memory: 1Mi}", "{medium: Memory, sizeLimit: 3Gi}", "2049Mi"},
		{"memory, an init container that needs most", one, "initContainers: [{name: i, resources: {limits: {memory: 2Gi}}}]", "{medium: Memory, sizeLimit: 3Gi}", "2Gi"},
		{
			"memory, init containers that go on", one,
			"initContainers: [{name: i, restartPolicy: Always, resources: {limits: {memory: 1Gi}}}, {name: j, resources: {limits: {memory: 512Mi}}}]",
			"{medium: Memory, sizeLimit: 3Gi}", "2Gi",
		},
		{"memory, an init container without a limit", one, "initContainers: [{name: i}]", "{medium: Memory, sizeLimit: 3Gi}", "3Gi"},
		{"disk, none", "[{name: a, volumeMounts: [{name: v, mountPath: /v}]}]", "", "{}", ""},
		{"disk, the pod's is smaller", one, "", "{sizeLimit: 3Gi}", "2Gi"},
		{"disk, its own is smaller", one, "", "{sizeLimit: 1Mi}", "1Mi"},
		{"disk, the sum of what is declared", two, "", "{sizeLimit: 3Gi}", "2Gi"},
		{"huge pages, its own", strings.Replace(one, "limits: {", "limits: {hugepages-2Mi: 4Mi, ", 1), "", "{medium: HugePages-2Mi, sizeLimit: 3Gi}", "3Gi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			more := c.more
			if more != "" {
				more = ", " + more
			}
			w := parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, uid: 0a1b}, spec: {containers: "+c.containers+more+", volumes: [{name: v, emptyDir: "+c.emptyDir+"}]}}")
			w.config.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
			w.config.ClusterAttach = strings.Contains(c.name, "in a cluster")
			want := w.only(t)
			if want.Problem != "" {
				t.Fatal(want.Problem)
			}
			var src corev1.EmptyDirVolumeSource
			if err := json.Unmarshal(want.Spec.Config, &src); err != nil {
				t.Fatal(err)
			}
			got := ""
			if src.SizeLimit != nil {
				got = src.SizeLimit.String()
			}
			if got != c.want {
				t.Errorf("got a limit of %q, want %q", got, c.want)
			}
		})
	}
}

// TestHugePagesAreOfASizeThatThePodAsksFor: an emptyDir has pages of that size; if it names no size, the pod must ask
// for exactly one.
// Items: M03.
func TestHugePagesAreOfASizeThatThePodAsksFor(t *testing.T) {
	for _, c := range []struct{ asks, medium, want, problem string }{
		{"limits: {hugepages-2Mi: 4Mi}", "HugePages", "HugePages-2Mi", ""},
		{"requests: {hugepages-1Gi: 1Gi}", "HugePages", "HugePages-1Gi", ""},
		{"limits: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi}", "HugePages-1Gi", "HugePages-1Gi", ""},
		{"limits: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi}", "HugePages", "", "are 2Mi and 1Gi"},
		{"limits: {hugepages-2Mi: 4Mi}", "HugePages-1Gi", "", "are 2Mi"},
		{"limits: {hugepages-2Mi: 0}", "HugePages", "", "is none"},
		{"limits: {memory: 1Gi}", "HugePages-2Mi", "", "is none"},
	} {
		for _, text := range []string{
			"containers: [{name: a, resources: {" + c.asks + "}, volumeMounts: [{name: v, mountPath: /v}]}]",
			"initContainers: [{name: i, resources: {" + c.asks + "}}], containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}]",
			"resources: {" + c.asks + "}, containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}]",
		} {
			w := parse(t, "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, uid: 0a1b}, spec: {"+text+", volumes: [{name: v, emptyDir: {medium: "+c.medium+"}}]}}")
			got := w.only(t)
			if c.problem != "" {
				if !strings.Contains(got.Problem, c.problem) || !strings.Contains(got.Problem, "emptyDir.medium") {
					t.Errorf("%s of %s: got %q, want a problem that says %q", c.medium, text, got.Problem, c.problem)
				}
				continue
			}
			var src corev1.EmptyDirVolumeSource
			if err := json.Unmarshal(got.Spec.Config, &src); got.Problem != "" || err != nil || string(src.Medium) != c.want {
				t.Errorf("%s of %s: got %q, %v, %q, want %s", c.medium, text, src.Medium, err, got.Problem, c.want)
			}
		}
	}
}

func TestModeOfAnEmptyDirIsOneThatTheAPITakes(t *testing.T) {
	for mode, want := range map[string]string{
		"0700": "", "01777": "", "0": "",
		"-1":    `pod default/web: spec.volumes[0].emptyDir.mode: found "-1", want 0 to 01777 (1023 in decimal)`,
		"02000": "pod default/web: spec.volumes[0].emptyDir.mode: found 1024, want 0 to 01777 (1023 in decimal)",
	} {
		w := parse(t, `
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u-1}
spec:
  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {mode: `+mode+`}}]
`)
		if got := w.only(t).Problem; got != want {
			t.Errorf("mode %s: got %q, want %q", mode, got, want)
		}
	}
}
