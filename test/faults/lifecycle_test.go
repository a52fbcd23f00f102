package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// variants are the abilities that drivers have or lack.
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
	n.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) wantFile(path, want string) {
	n.t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		n.t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
	}
}

// N-21, N-43, N-51...N-71: one pod, then a second one, then a reader; each file
// stays where it was written.
// Items: A08, A09, A32, N-21, N-40, N-42, N-43, N-51, N-52, N-53, N-54, N-55, N-56, N-60, N-62, N-63, N-65, N-66, N-67, N-68, N-73.
// Scenarios: U-129.
func TestFileSystemVolumeOfThreePods(t *testing.T) {
	eachVariant(t, func(n *node) {
		reader := fromClaim("data")
		reader.source = "persistentVolumeClaim: {claimName: data, readOnly: true}"
		n.apply(want{name: "data"}.String(), pod("first", fromClaim("data")))
		n.mounted("first")
		n.write(filepath.Join(n.hostPath("first", "data"), "f"), "kept")
		n.apply(pod("second", fromClaim("data")), pod("reader", reader))
		n.mounted("second", "reader")
		n.wantFile(filepath.Join(n.hostPath("second", "data"), "f"), "kept")
		err := os.WriteFile(filepath.Join(n.hostPath("reader", "data"), "g"), nil, 0o600)
		if err == nil {
			n.t.Error("the reader's volume can be written to")
		}
		n.deletePods("first")
		n.wantFile(filepath.Join(n.hostPath("second", "data"), "f"), "kept")
		n.deletePods("second", "reader")
		n.apply(pod("again", fromClaim("data")))
		n.mounted("again")
		n.wantFile(filepath.Join(n.hostPath("again", "data"), "f"), "kept")
		n.deletePods("again")
		n.deleteClaims("data")
		n.verdict()
	})
}

// N-69: a raw block volume.
// Items: A16, N-69.
func TestBlockVolume(t *testing.T) {
	eachVariant(t, func(n *node) {
		disk := fromClaim("disk")
		disk.block = true
		n.apply(want{name: "disk", mode: "Block"}.String(), pod("db", disk), pod("copy", disk))
		n.mounted("db", "copy")
		var st unix.Stat_t
		for _, pod := range []string{"db", "copy"} {
			if err := unix.Stat(n.hostPath(pod, "data"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
				n.t.Errorf("%s: got mode %o, %v, want a block device", n.hostPath(pod, "data"), st.Mode, err)
			}
		}
		n.deletePods("db")
		n.deletePods("copy")
		n.deleteClaims("disk")
		n.verdict()
	})
}

// Inline volumes are neither attached nor staged, and end with their pod.
//
// Scenarios: U-111, U-113.
func TestInlineVolume(t *testing.T) {
	eachVariant(t, func(n *node) {
		inline := volume{name: "scratch", source: "csi: {driver: " + driverName + ", volumeAttributes: {tag: inline}}"}
		n.apply(pod("one", inline), pod("two", inline))
		n.mounted("one", "two")
		n.write(filepath.Join(n.hostPath("one", "scratch"), "f"), "mine")
		if _, err := os.Stat(filepath.Join(n.hostPath("two", "scratch"), "f")); !os.IsNotExist(err) {
			n.t.Errorf("the pods share an inline volume: %v", err)
		}
		n.deletePods("one", "two")
		n.verdict()
		if all := n.model().Volumes; len(all) > 0 {
			n.t.Errorf("inline volumes left: %v", all)
		}
	})
}

// N-94...N-101: expanded while a pod has it, and again later.
// Items: N-95, N-96, N-97, N-99.
func TestExpansion(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"file system": "Filesystem", "block": "Block"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, csistrict.Script{})
			v := fromClaim("data")
			v.block = mode == "Block"
			n.apply(want{name: "data", mode: mode}.String(), pod("web", v))
			n.mounted("web")
			for i, size := range []string{"2Mi", "4Mi"} {
				n.apply(want{name: "data", mode: mode, size: size}.String())
				n.eventually("the driver to expand the volume", func() bool {
					for _, vol := range n.model().Volumes {
						return vol.NodeSizeBytes == int64(2<<20)<<i
					}
					return false
				})
			}
			n.deletePods("web")
			n.deleteClaims("data")
			n.verdict()
			if got := n.begun("NodeExpandVolume"); got != 2 {
				n.t.Errorf("expansions on the node: got %d, want 2", got)
			}
		})
	}
}

// Grown while no pod had it: the next pod has it expanded before it may use it,
// after the publish, by one call with both paths.
// Items: I02.
func TestGrownWhileNoPodHadIt(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.apply(want{name: "data"}.String(), pod("first", fromClaim("data")))
	n.mounted("first")
	n.deletePods("first")
	n.apply(want{name: "data", size: "2Mi"}.String())
	n.await("ControllerExpandVolume", 1)
	n.apply(pod("next", fromClaim("data")))
	n.mounted("next")
	if got := n.begun("NodeExpandVolume"); got != 1 {
		t.Errorf("expansions when the pod has it: got %d, want 1", got)
	}
	n.deletePods("next")
	n.deleteClaims("data")
	n.verdict()
}

// A driver that cannot make volumes larger: nothing happens on the node, and what
// is mounted stays.
// Items: I06.
// Scenarios: U-54.
func TestSwitchedOffForResizing(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{Without: []string{"EXPAND_VOLUME"}})
	n.apply(want{name: "data"}.String(), pod("web", fromClaim("data")))
	n.mounted("web")
	n.apply(want{name: "data", size: "2Mi"}.String(), pod("other", fromClaim("data")))
	n.mounted("other")
	if got := n.begun("NodeExpandVolume") + n.begun("ControllerExpandVolume"); got != 0 {
		t.Errorf("expansions: got %d, want none", got)
	}
	n.deletePods("web", "other")
	n.deleteClaims("data")
	n.verdict()
}

// N-34, N-35: each call has the secret that is for it, no other, and it is in no log.
// Items: F11, N-34, N-35, I05.
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
	n.apply(append(docs, n.class("secret", "", params...), want{name: "data", class: "secret"}.String(), pod("web", fromClaim("data")))...)
	n.mounted("web")
	n.apply(want{name: "data", class: "secret", size: "2Mi"}.String())
	n.await("NodeExpandVolume", 1)
	n.deletePods("web")
	n.deleteClaims("data")
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
	if log, err := os.ReadFile(n.daemon.log); err != nil || strings.Contains(string(log), "planted") {
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
			v.block = c.mode == "Block"
			n.apply(want{name: "data", mode: c.mode}.String(), groupPod("web", "  securityContext: {fsGroup: 2000}\n", v))
			if strings.Contains(c.call, "Un") {
				n.mounted("web")
				n.remove("web")
			}
			n.await(c.call, 1)
			n.daemon.kill()
			n.start()
			n.driverUp()
			if !strings.Contains(c.call, "Un") {
				n.mounted("web")
				n.remove("web")
			}
			n.unmounted("web")
			n.deleteClaims("data")
			n.verdict()
		})
	}
}
