//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A second daemon with the node's name and its own root is refused, under the node's own
// identity. It says which daemon has the name, and the first daemon goes on.
//
// Faults: A176.
func TestASecondDaemonOfTheNodeIsRefused(t *testing.T) {
	t.Parallel()
	no := false
	a := newArray(t, "twice.test", &storagev1.CSIDriverSpec{AttachRequired: &no})
	n := asNode(t, "twice")
	a.serve(n)
	n.eventually("the first has the name", func() bool { return n.holder() != "" })
	before := n.holder()
	dir := filepath.Join(n.dir, "second")
	must(t, os.MkdirAll(filepath.Join(dir, "run"), 0o700))
	second := exec.CommandContext(t.Context(), program, "run", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state"),
		"--socket", filepath.Join(dir, "run", "api.sock"), "--http-address", "off", "--node-name", n.name, "--kubeconfig", n.kubeconfig)
	out, err := second.CombinedOutput()
	for _, want := range []string{"another csi-volmgr has this node name", fmt.Sprintf("pid %d on host", n.daemon.Process.Pid), "--node-name of its own"} {
		if err == nil || second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %q: %s", err, want, out)
		}
	}
	a.volume("twice")
	createPod(t, podWith(n.name, "twice", fromClaim("twice")))
	n.mounted("twice")
	if after := n.holder(); !strings.Contains(after, fmt.Sprintf(`"pid":%d,`, n.daemon.Process.Pid)) || before == "" {
		t.Errorf("held by %s, before %s", after, before)
	}
	n.kill()
	n.start() // the restarted daemon has the name at once
	deletePod(t, "twice")
	n.eventually("nothing is mounted", func() bool { return len(n.mounts()) == 0 })
}

// holder returns the Node's annotation about the daemon that has its name.
func (n *node) holder() string {
	o, err := control.client.CoreV1().Nodes().Get(n.t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return o.Annotations["csi-volmgr.dev/holder"]
}

// The daemon ignores a program that writes the Node's status under another name than a
// kubelet's. If a kubelet writes it, the daemon shows a problem and mounts nothing new.
//
// Faults: A179.
func TestAKubeletOfTheNode(t *testing.T) {
	t.Parallel()
	no := false
	a := newArray(t, "beside.test", &storagev1.CSIDriverSpec{AttachRequired: &no})
	n := asNode(t, "beside")
	a.serve(n)
	a.volume("beside-1")
	a.volume("beside-2")
	writes := 0
	write := func(manager string) {
		writes++
		_, err := control.client.CoreV1().Nodes().Patch(t.Context(), n.name, types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","message":"%d"}]}}`, writes),
			metav1.PatchOptions{FieldManager: manager}, "status")
		must(t, err)
	}
	n.eventually("it has the name", func() bool { return n.holder() != "" })
	write("agent")
	createPod(t, podWith(n.name, "beside-1", fromClaim("beside-1")))
	n.mounted("beside-1")
	n.eventually("the kubelet is told", func() bool {
		write("kubelet") // times in managedFields have whole seconds
		return strings.Contains(n.problems(), "a kubelet writes the status of this Node too")
	})
	createPod(t, podWith(n.name, "beside-2", fromClaim("beside-2")))
	n.eventually("the second pod waits", func() bool {
		p, err := n.api.Pod(t.Context(), "default", "beside-2")
		return err == nil && len(p.Volumes) == 1 && !p.Ready && strings.Contains(p.Volumes[0].BlockedBy, "a kubelet writes the status")
	})
	n.mounted("beside-1")
	deletePod(t, "beside-1")
	deletePod(t, "beside-2")
	n.eventually("nothing is mounted", func() bool { return len(n.mounts()) == 0 })
}
