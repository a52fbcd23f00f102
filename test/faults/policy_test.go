package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// The CSIDriver object says attachRequired: false, though the driver could attach.
// Items: A03.
// Sidecars: SA-14.
func TestNoAttachmentWhereTheObjectSaysSo(t *testing.T) {
	t.Parallel()
	no := false
	n := newPlace(t)
	n.object.noAttach = true
	n.begin(csistrict.Script{Attach: &no})
	n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")))
	n.Mounted("web")
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.verdict()
	if got := n.begun("ControllerPublishVolume"); got != 0 {
		t.Errorf("attachments: got %d, want 0", got)
	}
}

// The CSIDriver object says podInfoOnMount: false.
// Items: F03.
func TestNoPodInfoWhereTheObjectDoesNotAskForIt(t *testing.T) {
	t.Parallel()
	no := false
	n := newPlace(t)
	n.object.noPodInfo = true
	n.begin(csistrict.Script{PodInfo: &no})
	n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")))
	n.Mounted("web")
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.verdict()
}

// N-45, N-47: the driver gives the volume one group. A pod that asks for another group
// waits, explain says why, and it gets the volume when the others are gone.
// Items: N-45, N-47.
func TestGroupThatTheDriverGives(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{With: []string{"VOLUME_MOUNT_GROUP"}})
	n.Apply(want{name: "data"}.String(), harness.GroupPod("one", "  securityContext: {fsGroup: 2000}\n", fromClaim("data")), harness.Pod("any", fromClaim("data")))
	n.Mounted("one", "any")
	n.Apply(harness.GroupPod("other", "  securityContext: {fsGroup: 3000}\n", fromClaim("data")))
	n.explained("pod", "other", "2000", "3000")
	n.DeletePods("one", "any")
	n.Mounted("other")
	n.DeletePods("other")
	n.DeleteClaims("data")
	n.verdict()
}

// N-89: a driver without a Controller service gets no Controller call, and its inline
// volume is mounted.
// Items: N-09, N-13.
// Sidecars: SA-14.
func TestDriverWithoutController(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{NoController: true})
	n.Apply(harness.Pod("web", volume{Name: "scratch", Source: "csi: {driver: " + driverName + "}"}))
	n.Mounted("web")
	n.DeletePods("web")
	n.verdict()
	for _, call := range []string{"CreateVolume", "ControllerGetCapabilities", "ControllerPublishVolume"} {
		if got := n.begun(call); got != 0 {
			t.Errorf("%s: got %d calls, want 0", call, got)
		}
	}
}

// G01, G04, F18: the daemon gives the volume's files to the pod's group as the CSIDriver
// object says, or leaves that to the driver if it can do so itself.
// Items: F18, G01, G02, G04.
// Scenarios: U-37, U-38, U-39, U-46.
func TestFilesAreGivenToThePodsGroup(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy, fsType string
		with           []string
		want           uint32
	}{
		"by default":                {"", "ext4", nil, 2000},
		"by default, no fsType":     {"", "", nil, 0},
		"File":                      {"File", "", nil, 2000},
		"None":                      {"None", "ext4", nil, 0},
		"the driver does it":        {"File", "ext4", []string{"VOLUME_MOUNT_GROUP"}, 0}, // but the strict one only says so
		"File, in an inline volume": {"File", "inline", nil, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newPlace(t)
			n.object.groupPolicy = tc.policy
			n.begin(csistrict.Script{With: tc.with})
			source := fromClaim("data")
			if tc.fsType == "inline" {
				source.Source = "csi: {driver: " + driverName + "}"
			} else {
				var params []string
				if tc.fsType != "" {
					params = []string{"csi.storage.k8s.io/fstype", tc.fsType}
				}
				n.Apply(n.class("typed", "", params...), want{name: "data", class: "typed"}.String(), harness.Pod("before", source))
				n.Mounted("before")
				n.write(filepath.Join(n.HostPath("before", "data"), "f"), "kept")
				n.DeletePods("before")
			}
			n.Apply(harness.GroupPod("web", "  securityContext: {fsGroup: 2000}\n", source))
			n.Mounted("web")
			paths := []string{n.HostPath("web", "data")}
			if tc.fsType != "inline" {
				paths = append(paths, filepath.Join(paths[0], "f"))
			}
			for _, path := range paths {
				var st unix.Stat_t
				if err := unix.Stat(path, &st); err != nil || st.Gid != tc.want || tc.want != 0 && st.Mode&0o060 != 0o060 {
					t.Errorf("%s: got group %d, mode %o, %v, want group %d", path, st.Gid, st.Mode, err, tc.want)
				}
			}
			n.DeletePods("web")
			if tc.fsType != "inline" {
				n.DeleteClaims("data")
			}
			n.verdict()
		})
	}
}

// No pod wants a volume: the daemon only asks the driver who it is and what it can do, also
// after a restart.
// Items: A01.
func TestNothingWantedNothingDone(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.daemon.Kill()
	n.start()
	n.DriverUp(driverName)
	n.verdict()
	for _, e := range n.events("") {
		switch e.Call {
		case "", "GetPluginInfo", "GetPluginCapabilities", "Probe", "ControllerGetCapabilities", "NodeGetCapabilities", "NodeGetInfo",
			"GroupControllerGetCapabilities":
		default:
			t.Errorf("call of %s", e.Call)
		}
	}
	for _, dir := range []string{"pods", filepath.Join("plugins", "kubernetes.io")} {
		if left, err := os.ReadDir(filepath.Join(n.Root, dir)); err == nil && len(left) > 0 {
			t.Errorf("made for no pod: %v", left)
		}
	}
}

// A missing secret holds back only the call that needs it. explain names the secret, and
// the volume goes on once it appears.
// Items: C20, C21.
// Sidecars: SP-07.
func TestSecretThatComesLater(t *testing.T) {
	t.Parallel()
	for call, kind := range map[string]string{stage: "node-stage", publish: "node-publish"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, csistrict.Script{Secrets: map[string]map[string]string{call: {"key": "planted"}}})
			prefix := "csi.storage.k8s.io/" + kind + "-secret-"
			n.Apply(n.class("secret", "", prefix+"name", "later", prefix+"namespace", "default"), want{name: "data", class: "secret"}.String(), harness.Pod("web", fromClaim("data")))
			t.Log(n.explained("pod", "web", "default/later", call))
			if got := n.begun(call); got != 0 {
				t.Errorf("calls without the secret: %d", got)
			}
			for _, dir := range []string{"plugins/kubernetes.io/csi/" + driverName + "/*/globalmount", "pods/*/volumes/*/*/mount"} {
				if call == publish && strings.HasPrefix(dir, "plugins") {
					continue // the volume is staged
				}
				if made, err := filepath.Glob(filepath.Join(n.Root, dir)); err != nil || len(made) > 0 {
					t.Errorf("made without the secret: %q, %v", made, err)
				}
			}
			n.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: later}\nstringData: {key: planted}")
			n.Mounted("web")
			n.DeletePods("web")
			n.DeleteClaims("data")
			n.verdict()
		})
	}
}
