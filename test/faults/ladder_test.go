package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// holder is a process that uses a mount.
type holder struct{ ended chan struct{} }

// holds starts a process that runs until the test ends, unless its storage ends it.
func (n *node) holds(name string, args ...string) holder {
	n.T.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		n.T.Fatal(err)
	}
	h := holder{make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the test kills the process, or its storage fails
		close(h.ended)
	}()
	n.T.Cleanup(func() { _ = cmd.Process.Kill(); <-h.ended })
	return h
}

func (h holder) alive() bool {
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}

// waits starts a process that waits for the frozen file system at path.
func (n *node) waits(path string) holder {
	n.T.Helper()
	server := n.freezeServer(path)
	n.T.Cleanup(func() { server.Close() })
	h := n.holds("stat", path+"/x")
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil { // the process has sent a request, and waits from now on
		n.T.Fatal(err)
	}
	return h
}

// failedUnmounts waits until the volume's unmount has failed that often, and returns its
// status.
func (n *node) failedUnmounts(times int) (v server.VolumeStatus) {
	n.T.Helper()
	n.Eventually("the unmount to fail", func() bool {
		var all struct {
			Items []server.VolumeStatus `json:"items"`
		}
		if err := json.Unmarshal([]byte(n.Do("", "get", "volumes", "-o", "json")), &all); err != nil {
			n.T.Fatal(err)
		}
		for _, one := range all.Items {
			for _, m := range one.Volume.Mounts {
				if v = one; m.Phase == state.Leaving && m.Retry().Attempts >= times {
					return true
				}
			}
		}
		return false
	})
	return v
}

// A mount does not answer and a process waits for it. Its unmount fails until an operator
// acts; explain shows the current step and the next one. The operator may force it, once
// and with a reason, which is in the audit log. The waiting process gets an error, and the
// volume is removed.
//
// Faults: A130.
func TestFrozenMountIsUnmountedByForceOnOrder(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	scratch := volume{Name: "data", Source: "emptyDir: {}"}
	n.Apply(harness.Pod("web", scratch), harness.Pod("other", scratch))
	n.Mounted("web", "other")
	p, err := n.API.Pod(t.Context(), "default", "other")
	if err != nil {
		t.Fatal(err)
	}
	other := string(p.Volumes[0].ID)
	stuck := n.waits(n.HostPath("web", "data"))
	n.Remove("web")
	v := n.failedUnmounts(2)
	id := string(v.Volume.ID)
	if v.Unmount == nil || v.Unmount.Step != state.UnmountNormal || v.Unmount.Next != "" || !strings.HasSuffix(v.Unmount.Path, "/data") {
		t.Errorf("shown: %+v", v.Unmount)
	}
	n.explained("pod", "web", "unmount", "normal of", "failing for", "no harder step follows automatically")
	for _, bad := range [][]string{
		{"retry", id, "--step=force"},
		{"retry", id, "--reason=x"},
		{"retry", id, "--step=harder", "--reason=x"},
		{"retry", other, "--step=lazy", "--reason=x"}, // a pod uses this volume
		{"forget", id},
		{"forget", id, "--reason= ", "--even-mounted"},
		{"forget", id, "--reason=x"}, // this volume is mounted
		{"forget", other, "--reason=x", "--even-mounted"},
	} {
		if r := n.CLI("", bad...); r.Code == 0 {
			t.Errorf("%q is not refused: %s", bad, r.Stdout)
		}
	}
	// The API requires a reason too.
	if _, err := n.API.Retry(t.Context(), id, state.UnmountForce, ""); err == nil {
		t.Error("a step without a reason is not refused")
	}
	if _, err := n.API.Forget(t.Context(), id, "", true); err == nil {
		t.Error("a volume is forgotten without a reason")
	}
	if !stuck.alive() {
		t.Error("the process that waits was ended without an order")
	}
	n.Do("", "retry", id, "--step=force", "--reason=the filer is gone")
	n.Eventually("the process that waited to be told", func() bool { return !stuck.alive() })
	n.Unmounted("web")
	n.verified("other")
	log, err := os.ReadFile(filepath.Join(n.Dir, "state", "audit.log"))
	for _, want := range []string{"the filer is gone", "force", "forget"} { // the audit log has refused orders too
		if err != nil || !strings.Contains(string(log), want) {
			t.Errorf("audit log: no %q, %v\n%s", want, err, log)
		}
	}
	n.DeletePods("other")
	n.verdict()
}

// A policy forces the unmount without an operator. An open file also keeps a mount from
// being forced; then the lazy step after it ends the mount, and the process goes on.
func TestUnmountsClimbTheLadderByPolicy(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.flags = []string{"--unmount-steps", "*=force@1s,lazy@2s"}
	n.begin(csistrict.Script{})
	n.Apply(harness.Pod("frozen", volume{Name: "data", Source: "emptyDir: {}"}), harness.Pod("open", inline()))
	n.Mounted("frozen", "open")
	stuck := n.waits(n.HostPath("frozen", "data"))
	file := filepath.Join(n.HostPath("open", "data"), "f")
	n.write(file, "kept")
	open := n.holds("tail", "-f", file)
	n.Eventually("the process to open the file", func() bool { return strings.Contains(n.Do("", "who", filepath.Dir(file)), "tail") })
	n.Remove("frozen", "open")
	n.Unmounted("frozen", "open")
	n.Eventually("the process that waited to be told", func() bool { return !stuck.alive() })
	if !open.alive() {
		t.Error("the process that has a file open was ended")
	}
	n.verdict()
}
