package faults

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// verified waits until the daemon says that the pod may rely on its volumes.
func (n *node) verified(pod string) {
	n.T.Helper()
	if r := n.CLI("", "wait", "pod", pod, "--for=verified", "--timeout", harness.Patience.String()); r.Code != 0 {
		n.T.Fatalf("pod %s is not verified: %s%s\n%s", pod, r.Stdout, r.Stderr, n.CLI("", "explain", "pod", pod).Stdout)
	}
}

// refused asks repeatedly, with a timeout of 0, whether the pod may rely on its volumes,
// until the daemon refuses for a reason with these words.
func (n *node) refused(pod string, words ...string) {
	n.T.Helper()
	var said string
	n.Eventually("pod "+pod+" to be refused", func() bool {
		r := n.CLI("", "wait", "pod", pod, "--for=verified", "--timeout", "0s")
		said = r.Stderr
		if r.Code == 0 {
			return false
		}
		for _, w := range words {
			if !strings.Contains(said, w) {
				return false
			}
		}
		return true
	})
	n.T.Log(said)
}

// When a mount is unmounted behind the daemon's back, the daemon notices and mounts it
// again, even if the start of a container is the first to ask. No file is written to the
// directory below the mount.
//
// Faults: A016, A017.
func TestUnmountedByHandIsMadeAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(want{name: "data"}.String(), harness.Pod("web", fromClaim("data")))
	n.Mounted("web")
	n.verified("web")
	target := n.HostPath("web", "data")
	n.write(filepath.Join(target, "f"), "kept")
	n.unmount(target)
	n.verified("web") // the daemon asks the kernel, even if it has not noticed the unmount
	n.wantFile(filepath.Join(target, "f"), "kept")
	if layers := n.layers(target); layers != 1 {
		t.Errorf("mounts at the target: got %d, want 1", layers)
	}
	// Unmount the staging mount while a pod uses it, and start a second pod.
	stage := ""
	for _, m := range n.Mounts() {
		if strings.HasSuffix(m, "globalmount") {
			stage = m
		}
	}
	if stage == "" {
		t.Fatalf("no staging mount: %q", n.Mounts())
	}
	n.unmount(stage)
	n.Apply(harness.Pod("next", fromClaim("data")))
	n.verified("next")
	n.wantFile(filepath.Join(n.HostPath("next", "data"), "f"), "kept")
	n.verified("web")
	n.DeletePods("web", "next")
	n.DeleteClaims("data")
	n.verdict()
}

// When a mount differs from what the driver made, explain says so at once and no container
// may start on it. The daemon calls no driver, and the pod may rely on its volumes once the
// mount is restored.
//
// Faults: A101.
func TestMountThatIsNotAsItWasIsTold(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(harness.Pod("web", inline()), harness.Pod("other", inline()))
	n.Mounted("web", "other")
	target := n.HostPath("web", "data")
	n.write(filepath.Join(target, "f"), "kept")
	calls := len(n.nodeCalls())
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(unix.MS_RDONLY)
	n.explained("pod", "web", "read-only")
	n.refused("web", "read-only")
	remount(0)
	n.verified("web")

	die := n.freeze(target)
	n.explained("pod", "web", "mounted over it")
	n.refused("web", "mounted over it")
	n.verified("other")
	die() // the FUSE daemon is dead, its mount is still there
	n.refused("web", "mounted over it")
	n.unmount(target)
	n.verified("web")
	n.wantFile(filepath.Join(target, "f"), "kept")
	if got := n.nodeCalls()[calls:]; len(got) > 0 {
		t.Errorf("calls made: %q", got)
	}
	n.DeletePods("web", "other")
	n.verdict()
}
