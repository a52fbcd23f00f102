package faults

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// variants are drivers that have all capabilities or lack some.
func variants() map[string]csistrict.Script {
	return map[string]csistrict.Script{
		"all":            {},
		"no attach":      {Without: []string{"PUBLISH_UNPUBLISH_VOLUME"}},
		"no stage":       {Without: []string{"STAGE_UNSTAGE_VOLUME"}},
		"least":          {Without: []string{"PUBLISH_UNPUBLISH_VOLUME", "STAGE_UNSTAGE_VOLUME", "SINGLE_NODE_MULTI_WRITER", "GET_VOLUME_STATS", "LIST_VOLUMES"}},
		"no node expand": {Without: []string{"SINGLE_NODE_MULTI_WRITER"}},
	}
}

func eachVariant(t *testing.T, test func(n *node)) {
	t.Parallel()
	for name, s := range variants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newNode(t, s))
		})
	}
}

func (n *node) write(path, text string) {
	n.T.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.T.Fatal(err)
	}
}

func (n *node) wantFile(path, want string) {
	n.T.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		n.T.Errorf("%s: got %q, %v, want %q", path, got, err, want)
	}
}

// N-21, N-43, N-51...N-71: one pod, then a second one, then a reader; each file stays where
// it was written.
// Items: A08, A09, A32, N-21, N-40, N-42, N-43, N-51, N-52, N-53, N-54, N-55, N-56, N-60, N-62, N-63, N-65, N-66, N-67, N-68, N-73, N-39, N-48.
// Scenarios: U-129.
func TestFileSystemVolumeOfThreePods(t *testing.T) {
	eachVariant(t, func(n *node) {
		reader := fromClaim("data")
		reader.Source = "persistentVolumeClaim: {claimName: data, readOnly: true}"
		n.Apply(want{name: "data"}.String(), harness.Pod("first", fromClaim("data")))
		n.Mounted("first")
		n.write(filepath.Join(n.HostPath("first", "data"), "f"), "kept")
		n.Apply(harness.Pod("second", fromClaim("data")), harness.Pod("reader", reader))
		n.Mounted("second", "reader")
		n.wantFile(filepath.Join(n.HostPath("second", "data"), "f"), "kept")
		err := os.WriteFile(filepath.Join(n.HostPath("reader", "data"), "g"), nil, 0o600)
		if err == nil {
			n.T.Error("the reader's volume can be written to")
		}
		n.DeletePods("first")
		n.wantFile(filepath.Join(n.HostPath("second", "data"), "f"), "kept")
		n.DeletePods("second", "reader")
		n.Apply(harness.Pod("again", fromClaim("data")))
		n.Mounted("again")
		n.wantFile(filepath.Join(n.HostPath("again", "data"), "f"), "kept")
		n.DeletePods("again")
		n.DeleteClaims("data")
		n.verdict()
	})
}

// N-69: a raw block volume.
// Items: A16, N-69.
func TestBlockVolume(t *testing.T) {
	eachVariant(t, func(n *node) {
		disk := fromClaim("disk")
		disk.Block = true
		n.Apply(want{name: "disk", mode: "Block"}.String(), harness.Pod("db", disk), harness.Pod("copy", disk))
		n.Mounted("db", "copy")
		var st unix.Stat_t
		for _, pod := range []string{"db", "copy"} {
			if err := unix.Stat(n.HostPath(pod, "data"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
				n.T.Errorf("%s: got mode %o, %v, want a block device", n.HostPath(pod, "data"), st.Mode, err)
			}
		}
		if got := n.begun("NodePublishVolume"); got != 2 || n.begun("NodeStageVolume") > 1 {
			n.T.Errorf("stages: %d, want one at most; publications: %d, want one a pod", n.begun("NodeStageVolume"), got)
		}
		n.DeletePods("db")
		if err := unix.Stat(n.HostPath("copy", "data"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
			n.T.Errorf("the other pod's device: mode %o, %v", st.Mode, err)
		}
		n.DeletePods("copy")
		n.DeleteClaims("disk")
		n.verdict()
	})
}

// Inline volumes are neither attached nor staged, and end with their pod.
//
// Items: F19.
// Scenarios: U-111, U-113.
func TestInlineVolume(t *testing.T) {
	eachVariant(t, func(n *node) {
		inline := volume{Name: "scratch", Source: "csi: {driver: " + driverName + ", volumeAttributes: {tag: inline}}"}
		n.Apply(harness.Pod("one", inline), harness.Pod("two", inline))
		n.Mounted("one", "two")
		n.write(filepath.Join(n.HostPath("one", "scratch"), "f"), "mine")
		if _, err := os.Stat(filepath.Join(n.HostPath("two", "scratch"), "f")); !os.IsNotExist(err) {
			n.T.Errorf("the pods share an inline volume: %v", err)
		}
		before := slices.Sorted(maps.Keys(n.model().Volumes))
		n.daemon.Kill()
		n.start()
		n.DriverUp(driverName)
		n.Mounted("one", "two")
		if after := slices.Sorted(maps.Keys(n.model().Volumes)); len(after) != 2 || !slices.Equal(before, after) {
			n.T.Errorf("inline volumes: %q, and %q after a restart", before, after)
		}
		n.DeletePods("one", "two")
		n.verdict()
		if all := n.model().Volumes; len(all) > 0 {
			n.T.Errorf("inline volumes left: %v", all)
		}
	})
}

// N-94...N-101: the volume grows twice while a pod has it.
// Items: N-95, N-96, N-97, N-99, I03.
// Sidecars: SR-01.
func TestExpansion(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]csistrict.Script{
		"file system": {}, "block": {}, "no stage": {Without: []string{"STAGE_UNSTAGE_VOLUME"}},
		"no attach": {Without: []string{"PUBLISH_UNPUBLISH_VOLUME"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mode := "Filesystem"
			if name == "block" {
				mode = "Block"
			}
			n := newNode(t, script)
			v := fromClaim("data")
			v.Block = mode == "Block"
			n.Apply(want{name: "data", mode: mode}.String(), harness.Pod("web", v))
			n.Mounted("web")
			for i, size := range []string{"2Mi", "4Mi"} {
				n.Apply(want{name: "data", mode: mode, size: size}.String())
				n.Eventually("the driver to expand the volume", func() bool {
					for _, vol := range n.model().Volumes {
						return vol.NodeSizeBytes == int64(2<<20)<<i
					}
					return false
				})
			}
			n.DeletePods("web")
			n.DeleteClaims("data")
			n.verdict()
			if got := n.begun("NodeExpandVolume"); got != 2 {
				n.T.Errorf("expansions on the node: got %d, want 2", got)
			}
		})
	}
}

// The volume grows while no pod has it. Before the next pod may use it, the daemon calls
// NodeExpandVolume once, after the publish, with both paths.
// Items: I02, I04.
func TestGrownWhileNoPodHadIt(t *testing.T) {
	for name, without := range map[string][]string{"attached": nil, "not attached": {"PUBLISH_UNPUBLISH_VOLUME"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, csistrict.Script{Without: without})
			n.Apply(want{name: "data"}.String(), harness.Pod("first", fromClaim("data")))
			n.Mounted("first")
			n.DeletePods("first")
			n.Apply(want{name: "data", size: "2Mi"}.String())
			n.await("ControllerExpandVolume", 1)
			n.Apply(harness.Pod("next", fromClaim("data")))
			n.Mounted("next")
			if got := n.begun("NodeExpandVolume"); got != 1 {
				t.Errorf("expansions when the pod has it: got %d, want 1", got)
			}
			n.DeletePods("next")
			n.DeleteClaims("data")
			n.verdict()
		})
	}
}

// A driver cannot expand volumes: nothing happens on the node, and mounted volumes stay.
// Items: I06.
// Scenarios: U-54.
func TestSwitchedOffForResizing(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{Without: []string{"EXPAND_VOLUME"}})
	n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")))
	n.Mounted("web")
	n.Apply(want{name: "data", size: "2Mi"}.String(), harness.Pod("other", fromClaim("data")))
	n.Mounted("other")
	if got := n.begun("NodeExpandVolume") + n.begun("ControllerExpandVolume"); got != 0 {
		t.Errorf("expansions: got %d, want none", got)
	}
	n.DeletePods("web", "other")
	n.DeleteClaims("data")
	n.verdict()
}

// N-34, N-35: each call has its own secret and no other, and no log has a secret.
// Items: F11, N-34, N-35, I05, N-100.
// Sidecars: SA-01.
func TestSecretsGoWhereTheyAreFor(t *testing.T) {
	t.Parallel()
	calls := map[string]string{
		"CreateVolume": "provisioner", "DeleteVolume": "provisioner",
		"ControllerPublishVolume": "controller-publish", "ControllerUnpublishVolume": "controller-publish",
		"NodeStageVolume": "node-stage", "NodePublishVolume": "node-publish",
		"ControllerExpandVolume": "controller-expand", "NodeExpandVolume": "node-expand",
	}
	secrets, docs := map[string]map[string]string{}, []string{}
	var params []string
	seen := map[string]bool{}
	for call, kind := range calls {
		secrets[call] = map[string]string{"key": "planted-" + kind}
		if seen[kind] {
			continue
		}
		seen[kind] = true
		params = append(params, "csi.storage.k8s.io/"+kind+"-secret-name", kind, "csi.storage.k8s.io/"+kind+"-secret-namespace", "default")
		docs = append(docs, "apiVersion: v1\nkind: Secret\nmetadata: {name: "+kind+"}\nstringData: {key: planted-"+kind+"}")
	}
	n := newNode(t, csistrict.Script{Secrets: secrets})
	n.Apply(append(docs, n.class("secret", "", params...), want{name: "data", class: "secret"}.String(), harness.Pod("web", fromClaim("data")))...)
	n.Mounted("web")
	n.Apply(want{name: "data", class: "secret", size: "2Mi"}.String())
	n.await("NodeExpandVolume", 1)
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.verdict()
	for call := range calls {
		if n.begun(call) == 0 {
			t.Errorf("%s was never called", call)
		}
	}
	for _, e := range n.events("") {
		if strings.Contains(string(e.Request), "planted") {
			t.Errorf("%s: a secret is outside secrets: %s", e.Call, e.Request)
		}
	}
	if log, err := os.ReadFile(n.daemon.Log()); err != nil || strings.Contains(string(log), "planted") {
		t.Errorf("a secret is in the daemon's log (%v)", err)
	}
}

// N-22, N-26, N-55, N-59: the daemon is killed in the middle of each call.
// Items: N-22, N-26, N-55, N-59, N-70.
// Faults: A001.
func TestDaemonKilledInTheMiddleRepeatsTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ call, mode string }{
		{"ControllerPublishVolume", "Filesystem"},
		{"NodeStageVolume", "Filesystem"},
		{"NodePublishVolume", "Filesystem"},
		{"NodeStageVolume", "Block"},
		{"NodePublishVolume", "Block"},
		{"NodeUnpublishVolume", "Filesystem"},
		{"NodeUnstageVolume", "Filesystem"},
		{"ControllerUnpublishVolume", "Filesystem"},
		{"NodeUnpublishVolume", "Block"},
	} {
		t.Run(c.call+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, csistrict.Script{With: []string{"VOLUME_MOUNT_GROUP"}})
			n.fault(csistrict.Fault{ID: "slow", Call: c.call, Times: 1, Delay: 1000, IgnoreCancel: true})
			v := fromClaim("data")
			v.Block = c.mode == "Block"
			n.Apply(want{name: "data", mode: c.mode}.String(), harness.GroupPod("web", "  securityContext: {fsGroup: 2000}\n", v))
			if strings.Contains(c.call, "Un") {
				n.Mounted("web")
				n.Remove("web")
			}
			n.await(c.call, 1)
			n.daemon.Kill()
			n.start()
			n.DriverUp(driverName)
			if !strings.Contains(c.call, "Un") {
				n.Mounted("web")
				n.Remove("web")
			}
			n.Unmounted("web")
			n.DeleteClaims("data")
			n.verdict()
		})
	}
}
