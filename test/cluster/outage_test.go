//go:build cluster

package cluster

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"
)

var outage = flag.Duration("outage", time.Minute, "how long the API server is away in TestServerAwayWhileTheDaemonRestarts")

// showsProblem waits until the daemon says that it cannot reach the API server. It has read
// its records and mounts before that.
func (n *node) showsProblem() {
	n.t.Helper()
	n.eventually("the problem is shown", func() bool {
		problems, err := n.api.Problems(n.t.Context())
		return err == nil && len(problems) == 1 && slices.Contains(problems[0].Consequences, "pods of node "+n.name)
	})
}

// The API server is away for a minute, and the daemon is killed and started twice
// meanwhile. A pod keeps its volume, which stays as it is when the server is back.
//
// Faults: A006.
func TestServerAwayWhileTheDaemonRestarts(t *testing.T) {
	storage(t)
	n := asNode(t, "gamma")
	n.provisions()
	create(t, n.name, "kept")
	at := n.mounted("kept")
	before := fmt.Sprint(n.mounts())
	control.kill("kube-apiserver")
	over := time.After(*outage)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	n.kill()
	n.start()
	n.showsProblem()
	for again := true; again; {
		if now := fmt.Sprint(n.mounts()); now != before {
			t.Fatalf("mounted before %s, now %s", before, now)
		}
		select {
		case <-over:
			again = false
		case <-tick.C:
		}
	}
	if err := os.WriteFile(filepath.Join(at, "hello"), []byte("world"), 0o600); err != nil {
		t.Error(err)
	}
	n.kill()
	n.start()
	if err := control.startAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.eventually("the problem is over", func() bool {
		problems, err := n.api.Problems(t.Context())
		return err == nil && len(problems) == 0
	})
	if n.mounted("kept") != at {
		t.Error("it is mounted elsewhere now")
	}
	if now := fmt.Sprint(n.mounts()); now != before {
		t.Errorf("mounted before %s, after the server was back %s", before, now)
	}
	n.gone("kept")
	// Kubernetes' own controllers try the server again only after a minute or so.
	control.kill("kube-controller-manager")
	control.kill("kube-scheduler")
	must(t, control.startControllers(t.Context()))
}

// A node is cut off and loses its power. Kubernetes attaches its volume to another node, as
// it does when a node is out of service, and another pod on the first node wants the volume
// too. When the first node runs again, first cut off and then connected, it stages and
// publishes nothing before the volume is attached to it. It says so, and goes on when the
// other node has released the volume.
//
// Faults: A037.
// Scenarios: U-191.
func TestANodeThatWasCutOffWaitsForItsAttachment(t *testing.T) {
	t.Parallel()
	yes := true
	a := newArray(t, "fence.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("fenced")
	id, err := control.identity("system:node:fence-a", "system:nodes")
	must(t, err)
	id, line := wired(t, id)
	cut, other := newNode(t, "fence-a", id), asNode(t, "fence-b")
	a.serve(cut)
	a.serve(other)
	createPod(t, podWith(cut.name, "fenced-1", fromClaim("fenced")))
	cut.mounted("fenced-1")
	line.set(true)
	cut.kill()
	for _, m := range cut.mounts() {
		must(t, unix.Unmount(m, unix.MNT_DETACH))
	}
	a.lose(cut.name)
	outOfService(t, cut.name, true)
	deletePod(t, "fenced-1")
	createPod(t, podWith(other.name, "fenced-3", fromClaim("fenced")))
	other.mounted("fenced-3")
	createPod(t, podWith(cut.name, "fenced-2", fromClaim("fenced"))) // the pod tolerates the taint, and waits
	stages := a.count()
	cut.start()
	cut.showsProblem()
	outOfService(t, cut.name, false)
	line.set(false)
	cut.eventually("the new pod waits for its attachment", func() bool {
		p, err := cut.api.Pod(t.Context(), "default", "fenced-2")
		return err == nil && len(p.Volumes) == 1 && strings.Contains(p.Volumes[0].BlockedBy, "VolumeAttachment")
	})
	if now := a.count(); now != stages || a.stagedOn("fenced") != other.name {
		t.Errorf("staged %d times more, now on %s", now-stages, a.stagedOn("fenced"))
	}
	other.gone("fenced-3")
	cut.mounted("fenced-2")
	cut.gone("fenced-2")
}

// A node loses its power and restarts while it cannot reach the API server. It uses the
// last known pods, and says so. It mounts their volumes that need no attachment. A volume
// that needs one waits until its attachment is confirmed, since another node may have it.
func TestAStartWithoutTheServer(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	free, fenced := newArray(t, "offline-free.test", &storagev1.CSIDriverSpec{AttachRequired: &no}), newArray(t, "offline.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	free.volume("offline-free")
	fenced.volume("offline-fenced")
	id, err := control.identity("system:node:offline", "system:nodes")
	must(t, err)
	id, line := wired(t, id)
	n := newNode(t, "offline", id)
	free.serve(n)
	fenced.serve(n)
	createPod(t, podWith(n.name, "offline-free", fromClaim("offline-free")))
	createPod(t, podWith(n.name, "offline-fenced", fromClaim("offline-fenced")))
	n.mounted("offline-free")
	n.mounted("offline-fenced")
	line.set(true)
	n.stop()
	for _, m := range n.mounts() {
		must(t, unix.Unmount(m, unix.MNT_DETACH))
	}
	free.lose(n.name)
	fenced.lose(n.name)
	n.start()
	n.showsProblem()
	n.mounted("offline-free")
	n.eventually("the other waits for its attachment", func() bool {
		p, err := n.api.Pod(t.Context(), "default", "offline-fenced")
		return err == nil && len(p.Volumes) == 1 && !p.Ready && strings.Contains(p.Volumes[0].BlockedBy, "VolumeAttachment")
	})
	if problems, err := n.api.Problems(t.Context()); err != nil || len(problems) != 1 ||
		!strings.Contains(fmt.Sprint(problems[0].Consequences), "the last known ones") {
		t.Errorf("problems: %v, %v", problems, err)
	}
	if fenced.stagedOn("offline-fenced") != "" {
		t.Error("staged before it is known to be attached")
	}
	line.set(false)
	n.mounted("offline-fenced")
	deletePod(t, "offline-free")
	n.gone("offline-fenced")
}

// A pod, its claim and its volume are deleted while the daemon is down. The node may then
// read none of them and need not: the daemon unmounts by its journal.
//
// Faults: A059, A060.
func TestWhatWasDeletedMeanwhileGoes(t *testing.T) {
	t.Parallel()
	yes := true
	a := newArray(t, "gone.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("going")
	n := asNode(t, "deleted")
	a.serve(n)
	createPod(t, podWith(n.name, "goes", fromClaim("going")))
	n.mounted("goes")
	n.stop()
	deletePod(t, "goes")
	core := control.client.CoreV1()
	must(t, core.PersistentVolumeClaims("default").Delete(t.Context(), "going", metav1.DeleteOptions{}))
	must(t, core.PersistentVolumes().Delete(t.Context(), "going", metav1.DeleteOptions{}))
	n.eventuallyOff("the claim is gone", func() bool {
		_, err := core.PersistentVolumeClaims("default").Get(t.Context(), "going", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	n.start()
	n.eventually("nothing is left", func() bool {
		v, err := n.api.Volumes(t.Context())
		return err == nil && len(v) == 0 && len(n.mounts()) == 0 && len(n.inUse()) == 0
	})
	if a.stagedOn("going") != "" {
		t.Error("it is staged")
	}
}

// count returns how often volumes were staged.
func (a *array) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stages
}

// outOfService marks the node as powered off, so that Kubernetes detaches its volumes
// although the node does not answer, or removes the mark.
func outOfService(t *testing.T, node string, is bool) {
	t.Helper()
	taints := "null"
	if is {
		taints = fmt.Sprintf(`[{"key":%q,"value":"nodeshutdown","effect":"NoExecute"}]`, corev1.TaintNodeOutOfService)
	}
	ready := map[bool]corev1.ConditionStatus{true: corev1.ConditionUnknown, false: corev1.ConditionTrue}[is]
	nodes := control.client.CoreV1().Nodes()
	_, err := nodes.Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = nodes.Patch(t.Context(), node, types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, ready), metav1.PatchOptions{}, "status")
	must(t, err)
}
