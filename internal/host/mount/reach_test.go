package mount

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Faults: A161.
func TestMountsOfAnotherNamespaceThatDoNotReachThisOneAreTold(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("reach", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	run := func(script string) int {
		cmd := exec.Command("sh", "-c", script+" && echo up && exec cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		up := make([]byte, 3)
		if n, err := out.Read(up); err != nil || string(up[:n]) != "up\n" {
			t.Fatalf("%q: %q, %v", script, up[:n], err)
		}
		return cmd.Process.Pid
	}
	for _, c := range []struct {
		ours         uintptr
		script, want string
	}{
		{unix.MS_SHARED, "true", ""},
		{unix.MS_SHARED, "mount --make-rprivate /", "is private"},
		{unix.MS_SHARED, "mount --make-rslave /", "does not propagate its own"},
		{unix.MS_SHARED, "mount --make-rprivate / && mount --make-rshared /", "not with this node"},
		{unix.MS_SHARED, "mount --make-rprivate / && mount -t tmpfs x " + dir, "not this node's directory"},
		{unix.MS_PRIVATE, "true", "on a private mount on this node"},
	} {
		if err := unix.Mount("", dir, "", c.ours, ""); err != nil {
			t.Fatal(err)
		}
		got, err := Unreached(run(c.script), dir)
		if err != nil || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("after %q: %q, %v; want %q", c.script, got, err, c.want)
		}
		if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Unreached(syscall.Getpid(), dir); got != "" || err != nil {
		t.Errorf("of this process: %q, %v", got, err)
	}
	if got, err := Unreached(1<<30, dir); got != "" || err == nil {
		t.Errorf("of no process: %q, %v", got, err)
	}
}
