package faults

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

var (
	restarts = flag.Int("restarts", 4, "how often TestRestartsTouchNothing restarts the daemon")
	idlePods = flag.Int("idle-pods", 12, "how many pods it has meanwhile")
)

// table returns the ids and paths of the node's mounts.
func (n *node) table() (lines []string) {
	n.T.Helper()
	for _, f := range n.MountTable() {
		lines = append(lines, f[0]+" "+f[4])
	}
	slices.Sort(lines)
	return lines
}

// restart kills the daemon and starts it again. When it returns, the daemon knows the
// driver and has compared every record with the kernel.
func (n *node) restart() {
	n.T.Helper()
	n.daemon.Kill()
	n.start()
	n.DriverUp(driverName)
}

// inline returns an inline volume of the driver.
func inline() volume {
	return volume{Name: "data", Source: "csi: {driver: " + driverName + "}"}
}

// nodeCalls returns the Node and Controller calls of the driver, without those that only
// ask.
func (n *node) nodeCalls() (calls []string) {
	for _, e := range n.events("") {
		if e.Event != csistrict.EventBegin || !strings.HasPrefix(e.Call, "Node") && !strings.HasPrefix(e.Call, "Controller") {
			continue
		}
		if !strings.HasPrefix(e.Call, "NodeGet") && !strings.HasPrefix(e.Call, "ControllerGet") {
			calls = append(calls, e.Call)
		}
	}
	return calls
}

// A restart makes no call and changes no mount, however often it happens, whether the
// daemon is killed or stopped by SIGTERM.
//
// Faults: A056.
func TestRestartsTouchNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	pods := []string{"claimed"}
	docs := []string{want{name: "data"}.String(), harness.Pod("claimed", fromClaim("data"))}
	for i := 1; i < *idlePods; i++ {
		pods = append(pods, fmt.Sprintf("idle-%d", i))
		docs = append(docs, harness.Pod(pods[i], inline()))
	}
	n.Apply(docs...)
	n.Mounted(pods...)
	before, calls, loops := n.table(), n.nodeCalls(), n.Loops()
	if len(before) < *idlePods {
		t.Fatalf("mounts of %d pods: %d", *idlePods, len(before))
	}
	for i := range *restarts {
		if i%2 == 0 { // first of all: if new mounts are not written yet, a killed daemon publishes them once more
			n.daemon.Ask()
		}
		n.restart()
		n.Eventually("all pods to be there", func() bool {
			all, err := n.API.Pods(t.Context())
			return err == nil && len(all) == len(pods) && !slices.ContainsFunc(all, func(p server.PodStatus) bool { return !p.Ready })
		})
	}
	table, made := n.table(), n.nodeCalls()
	t.Logf("%d restarts beside %d idle pods: %d Node calls but those that read capabilities and info; %d mounts before, %d after, the same: %v",
		*restarts, len(pods), len(made)-len(calls), len(before), len(table), slices.Equal(before, table))
	if !slices.Equal(before, table) {
		t.Errorf("the mount table changed:\n%s\nbecame\n%s", strings.Join(before, "\n"), strings.Join(table, "\n"))
	}
	if !slices.Equal(calls, made) {
		t.Errorf("calls made: %q", made[len(calls):])
	}
	if after := n.Loops(); !slices.Equal(loops, after) {
		t.Errorf("loop devices: %q became %q", loops, after)
	}
	n.DeletePods(pods...)
	n.DeleteClaims("data")
	n.verdict()
}

// A user deletes the claim of a running pod: the daemon refuses, keeps the volume through
// restarts and changes nothing in it.
//
// Faults: A007.
func TestDeletedClaimOfARunningPodStays(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")))
	n.Mounted("web")
	path := filepath.Join(n.HostPath("web", "data"), "f")
	n.write(path, "kept")
	before, calls := n.table(), n.nodeCalls()
	for i := range 3 {
		if i == 0 { // what a killed daemon has not written yet, the next one makes once more
			n.daemon.Ask()
			n.restart()
		}
		if r := n.CLI("", "delete", "pvc", "data"); r.Code == 0 || !strings.Contains(r.Stderr, "web") {
			t.Errorf("delete pvc: exit code %d, %s; want a refusal that names the pod", r.Code, r.Stderr)
		}
		n.restart()
		n.Mounted("web")
	}
	n.wantFile(path, "kept")
	if after := n.table(); !slices.Equal(before, after) {
		t.Errorf("mounts: %q became %q", before, after)
	}
	if after := n.nodeCalls(); !slices.Equal(calls, after) {
		t.Errorf("calls made: %q", after[len(calls):])
	}
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.verdict()
}

// The daemon starts while the driver is down. It leaves running pods alone; new and deleted
// pods wait, explain says what for, and they go on when the driver is back.
//
// Faults: A057.
func TestRestartWhileTheDriverIsDown(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(want{name: "data"}.String(), harness.Pod("stays", fromClaim("data")), harness.Pod("goes", inline()))
	n.Mounted("stays", "goes")
	path := filepath.Join(n.HostPath("stays", "data"), "f")
	n.write(path, "kept")
	before := n.table()
	n.driver.Kill()
	n.daemon.Kill()
	n.start()
	n.Apply(harness.Pod("comes", inline()))
	n.Remove("goes")
	for _, pod := range []string{"comes", "goes"} {
		n.explained("pod", pod, driverName, "not registered")
	}
	n.Mounted("stays")
	n.wantFile(path, "kept")
	if after := n.table(); !slices.Equal(before, after) {
		t.Errorf("mounts: %q became %q", before, after)
	}
	n.startDriver()
	n.Mounted("comes")
	n.Unmounted("goes")
	n.wantFile(path, "kept")
	n.DeletePods("stays", "comes")
	n.DeleteClaims("data")
	n.verdict()
}

// A volume is in use for as long as its Unstage fails, also after a restart. explain says
// why it cannot be detached.
//
// Items: N-61, N-104.
// Faults: A014.
func TestVolumeThatCannotBeUnstagedStaysInUse(t *testing.T) {
	t.Parallel()
	fails := bad("NodeUnstageVolume", csistrict.Fault{Code: 13, Effect: csistrict.EffectNone, Message: "the array is on fire"})
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{fails}})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.Mounted("bad")
	n.Remove("bad")
	for round := range 2 {
		n.await("NodeUnstageVolume", 2*round+2)
		volumes, err := n.API.Volumes(t.Context())
		if err != nil || len(volumes) != 1 || !volumes[0].Volume.InUse() {
			t.Fatalf("round %d: volumes: %+v, %v, want one in use", round, volumes, err)
		}
		n.explained("volume", string(volumes[0].Volume.ID), "NodeUnstageVolume", "Internal", "the array is on fire")
		if got := n.begun("ControllerUnpublishVolume"); got != 0 {
			t.Errorf("round %d: detached %d times while it was staged", round, got)
		}
		n.restart()
	}
	n.heal()
	n.Unmounted("bad")
	n.NoVolumes()
	n.DeleteClaims("bad")
	n.verdict()
}

// A volume whose mount fails again and again, with growing pauses, is removed at once: the
// daemon makes no further attempt and does not wait for the pause to end.
//
// Faults: A047.
func TestRemovalDoesNotWaitForAPause(t *testing.T) {
	t.Parallel()
	fails := bad("NodePublishVolume", csistrict.Fault{Code: 14, Effect: csistrict.EffectNone, Message: "not now"})
	n := newBadNode(t, csistrict.Script{Faults: []csistrict.Fault{fails}})
	n.Apply(harness.Pod("bad", fromClaim("bad")))
	n.await("NodePublishVolume", 4) // the next attempt is seconds away
	n.Eventually("the fourth attempt to fail", func() bool { return n.count(csistrict.EventEnd, "NodePublishVolume") >= 4 })
	attempts := n.begun("NodePublishVolume")
	n.DeletePods("bad")
	if got := n.begun("NodePublishVolume"); got != attempts {
		t.Errorf("attempts to mount what no pod wants: %d", got-attempts)
	}
	if n.begun("NodeUnpublishVolume") == 0 {
		t.Error("what may be there was never taken away")
	}
	n.DeleteClaims("bad")
	n.verdict()
}

// The daemon leaks no file descriptor when a driver comes and goes.
//
// Faults: A075.
func TestDriverThatComesAndGoesLeavesNoDescriptor(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	round := func() {
		asked := n.begun("NodeGetCapabilities")
		n.driver.Crash()
		n.await("NodeGetCapabilities", asked+1)
		n.DriverUp(driverName)
		n.Apply(harness.Pod("one", inline()))
		n.Mounted("one")
		n.DeletePods("one")
	}
	count := func() int {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.daemon.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	for range 3 {
		round()
	}
	before := count()
	for range 10 {
		round()
	}
	// Connections from clients and to the driver come and go.
	if after := count(); after > before+5 {
		t.Errorf("descriptors: %d became %d after 10 restarts of the driver", before, after)
	}
	n.verdict()
}
