package faults

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/fakecri"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A pod is deleted while its container still runs, and the daemon is killed meanwhile. The
// daemon unpublishes nothing before the container runtime says that the container has
// ended, even if the runtime does not answer, and explain says so.
//
// Faults: A008.
func TestNothingIsUnpublishedBeforeTheRuntimeSaysSo(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	runtime := fakecri.New(t, filepath.Join(n.Dir, "cri.sock"))
	n.flags = []string{"--container-runtime-endpoint", runtime.Endpoint()}
	n.begin(csistrict.Script{})
	n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")), harness.Pod("idle", inline()))
	n.Mounted("web", "idle")
	uid := n.uid("web")
	runtime.Sandbox(uid, runtimev1.PodSandboxState_SANDBOX_READY)
	runtime.Container(uid, "nginx", runtimev1.ContainerState_CONTAINER_RUNNING)
	path := filepath.Join(n.HostPath("web", "data"), "f")
	n.write(path, "kept")
	n.Remove("web")
	n.explained("pod", "web", "container nginx", "still runs")
	n.DeletePods("idle") // this pod has no container, so nothing holds it
	before := n.table()
	n.restart()
	n.explained("pod", "web", "container nginx", "still runs")
	runtime.Stop()
	n.explained("pod", "web", "cannot tell whether containers of the pod still run")
	if problems := n.Do("", "get", "problems"); !strings.Contains(problems, runtime.Endpoint()) {
		t.Errorf("problems: %s", problems)
	}
	n.restart()
	n.explained("pod", "web", "cannot tell whether containers of the pod still run")
	n.wantFile(path, "kept")
	if after := n.table(); !slices.Equal(before, after) {
		t.Errorf("mounts: %q became %q", before, after)
	}
	for _, e := range n.events("NodeUnpublishVolume") {
		if strings.HasPrefix(e.Volume, "pvc-") {
			t.Errorf("unpublished while its container may live: %+v", e)
		}
	}
	runtime.Container(uid, "nginx", runtimev1.ContainerState_CONTAINER_EXITED)
	runtime.Sandbox(uid, runtimev1.PodSandboxState_SANDBOX_NOTREADY)
	runtime.Start()
	n.Unmounted("web")
	n.DeleteClaims("data")
	n.verdict()
}

// uid returns the pod's UID. The container runtime knows the pod by it.
func (n *node) uid(pod string) string {
	n.T.Helper()
	p, err := n.API.Pod(n.T.Context(), "default", pod)
	if err != nil {
		n.T.Fatal(err)
	}
	return string(p.Pod.UID)
}
