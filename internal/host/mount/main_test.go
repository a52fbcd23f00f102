package mount

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// TestMain runs the tests in a mount namespace of their own, so that they leave nothing
// behind and see no mounts of others.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := isolate.Serve(context.Background(), Service()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	const inside = "MOUNT_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the tests of internal/host/mount make mounts: run them as root")
		os.Exit(1)
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// helperCommand returns a command that runs this program as a helper.
func helperCommand() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "helper")
	cmd.Stderr = os.Stderr
	return cmd
}

// kernels returns the running kernel, and older ones.
func kernels(t *testing.T) map[string]*Kernel {
	t.Helper()
	k := New()
	const all = OpenAt2 | MountTree | FSContext | MountRoot | MountID | NoSwap
	if k.Features() != all {
		t.Logf("this kernel has only %v: not all paths are tested", k.Features())
	}
	return map[string]*Kernel{
		"newest":          k,
		"no openat2":      k.Without(OpenAt2),
		"no mount tree":   k.Without(MountTree),
		"no fs context":   k.Without(FSContext | NoSwap),
		"no mount id":     k.Without(MountID),
		"no mount root":   k.Without(MountID | MountRoot),
		"none of the new": k.Without(all),
	}
}

// needs ends a test whose subject the running kernel lacks. It fails it, unless an older kernel is played.
func needs(t *testing.T, f Feature) {
	t.Helper()
	played := os.Getenv("OLD_KERNEL")
	switch missing := f &^ New().Features(); {
	case missing == 0:
	case played == "":
		t.Fatalf("this kernel lacks %v", missing)
	default:
		t.Skipf("Linux %s lacks %v", played, missing)
	}
}

// onEachKernel runs f in a fresh directory on a mount of its own.
func onEachKernel(t *testing.T, f func(t *testing.T, k *Kernel, dir string)) {
	t.Helper()
	for name, k := range kernels(t) {
		t.Run(name, func(t *testing.T) { f(t, k, scratch(t)) })
	}
}

// scratch returns a directory on a tmpfs of its own, which the end of the test unmounts.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("scratch", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount scratch: %v", err)
		}
	})
	return dir
}

func mkdir(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func link(t testing.TB, to, path string) string {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func look(t testing.TB, k *Kernel, path string) Info {
	t.Helper()
	info, err := k.Look(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// rowAt returns the mount table's row of the topmost mount at path.
func rowAt(t testing.TB, path string) row {
	t.Helper()
	rows, err := New().readMountinfo()
	if err != nil {
		t.Fatal(err)
	}
	var found row
	for _, r := range rows {
		if r.path == path {
			found = r
		}
	}
	if found.path == "" {
		t.Fatalf("nothing is mounted at %s", path)
	}
	return found
}
