package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// onSharedRoot starts a node whose directories are on a shared mount, as with systemd, with the embedded driver.
func onSharedRoot(t *testing.T) *node {
	t.Helper()
	localOnly(t)
	k := kinds()[0]
	k.name = "local.csi-volmgr.dev"
	n := newPlace(t)
	must(t, unix.Mount(n.Dir, n.Dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(n.Dir, unix.MNT_DETACH) })
	must(t, unix.Mount("", n.Dir, "", unix.MS_SHARED, ""))
	n.driver = newDriver(n, k)
	n.start()
	n.DriverUp(k.name)
	return n
}

// isMount reports whether dir is the root of another file system than its parent's.
func isMount(t *testing.T, dir string) bool {
	t.Helper()
	var at, up unix.Stat_t
	must(t, unix.Stat(dir, &at))
	must(t, unix.Stat(filepath.Dir(dir), &up))
	return at.Dev != up.Dev
}

func mountedBelow(t *testing.T, dir string, check func()) {
	t.Helper()
	must(t, unix.Mount("x", dir, "tmpfs", 0, ""))
	check()
	must(t, unix.Unmount(dir, 0))
}

// What a pod's container, or a person at a directory of mount -t csi, mounts below a volume is not in the volume's stage
// and its other pods, unless the pod asked for Bidirectional. A pod's mount of an earlier version, a peer of the stage,
// is verified and unmounted by the next daemon.
func TestWhatIsMountedBelowAVolumeStaysThere(t *testing.T) {
	t.Parallel()
	harness.MountHelper(t, program)
	n := onSharedRoot(t)
	both := strings.Replace(harness.Pod("both", harness.FromClaim("data", "data")), "readOnly: false}",
		"mountPropagation: Bidirectional}\n    securityContext: {privileged: true}", 1)
	n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), both,
		harness.Pod("one", harness.FromClaim("data", "data")), harness.Pod("two", harness.FromClaim("data", "data")))
	for _, pod := range []string{"one", "two", "both"} {
		n.Mounted(pod)
	}
	one, two, shared := n.HostPath("one", "data"), n.HostPath("two", "data"), n.HostPath("both", "data")
	stages := slices.DeleteFunc(n.Mounts(), func(path string) bool { return filepath.Base(path) != "globalmount" })
	if len(stages) != 1 {
		t.Fatalf("stages: %q", stages)
	}
	stage := stages[0]
	must(t, os.Mkdir(one+"/sub", 0o755))
	mountedBelow(t, one+"/sub", func() {
		if isMount(t, stage+"/sub") || isMount(t, two+"/sub") {
			t.Error("what one pod mounts is in the stage or in another pod")
		}
	})
	mountedBelow(t, shared+"/sub", func() {
		if !isMount(t, stage+"/sub") || !isMount(t, one+"/sub") || !isMount(t, two+"/sub") {
			t.Error("what a Bidirectional pod mounts does not reach the stage and the other pods")
		}
	})
	srv := n.Path("srv")
	must(t, os.Mkdir(srv, 0o755))
	if out, err := exec.Command("mount", "-t", "csi", "-o", "socket="+n.Socket, "default/data", srv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mountedBelow(t, srv+"/sub", func() {
		if isMount(t, stage+"/sub") || isMount(t, one+"/sub") {
			t.Error("what a person mounts is in the stage or in a pod")
		}
	})
	must(t, unix.Unmount(srv, 0))

	n.daemon.Kill()
	must(t, unix.Unmount(two, 0))
	must(t, unix.Mount(stage, two, "", unix.MS_BIND, ""))
	n.start()
	n.DriverUp(n.driver.name)
	for _, pod := range []string{"one", "two", "both"} {
		n.Mounted(pod)
		n.asWanted(pod)
		n.Do("", "wait", "pod", pod, "--for=verified")
	}
	mountedBelow(t, two+"/sub", func() {
		if !isMount(t, stage+"/sub") {
			t.Error("the mount of the earlier version was made anew")
		}
	})
	n.DeletePods("one", "two", "both")
	n.Do("", "volume", "remove", "default/data")
	n.DeleteClaims("data")
	n.nothingLeft()
}

// mount -t csi -o ro keeps what the volume's own mount forbids, and so does its remount.
func TestAMountKeepsWhatItsVolumeForbids(t *testing.T) {
	t.Parallel()
	harness.MountHelper(t, program)
	n := onSharedRoot(t)
	n.Apply(fmt.Sprintf("%s\nmountOptions: [nosuid, nodev]\n", strings.TrimSpace(n.driver.class())), claim("data", "64Mi", fileSystem, rwo))
	srv := n.Path("srv")
	must(t, os.Mkdir(srv, 0o755))
	options := func() string {
		out, err := exec.Command("findmnt", "-n", "-o", "VFS-OPTIONS", "--mountpoint", srv).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	line := n.Path("fstab")
	for words, want := range map[string]string{
		"defaults": "rw,nosuid,nodev,relatime", "ro": "ro,nosuid,nodev,relatime", "user": "rw,nosuid,nodev,noexec,relatime",
	} {
		must(t, os.WriteFile(line, fmt.Appendf(nil, "default/data %s csi socket=%s,%s 0 0\n", srv, n.Socket, words), 0o644))
		for _, remount := range []string{"", "remount,ro"} {
			args := []string{"-T", line}
			if remount != "" {
				args, want = append(args, "-o", remount), strings.Replace(want, "rw", "ro", 1)
			}
			if out, err := exec.Command("mount", append(args, srv)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got := options(); got != want {
				t.Errorf("%s, %s: %s, want %s", words, remount, got, want)
			}
		}
		must(t, unix.Unmount(srv, 0))
	}
	n.Do("", "volume", "remove", "default/data")
	n.DeleteClaims("data")
	n.nothingLeft()
}
