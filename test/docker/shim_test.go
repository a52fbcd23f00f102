//go:build docker

package docker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The monitor of a container dies: the volume stays for as long as the container's process
// lives, and goes after it.
func TestMonitorIsKilled(t *testing.T) {
	for engine, monitor := range map[string]string{"docker": "containerd-shim", "podman": "conmon"} {
		t.Run(monitor, func(t *testing.T) {
			r := newRig(t)
			if engine == "docker" {
				r.startDocker()
			} else {
				r.startPodman()
			}
			r.volumeCreate(engine, "db", "size=16Mi")
			r.must(engine, "run", "-d", "--name", "beat", "-v", "db:/data", busybox, "sh", "-c",
				"echo kept > /data/f; sync; while :; do echo x > /data/beat; sleep 0.1; done")
			pid := r.pid(engine, "beat")
			parent := parentOf(t, pid)
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent)); !strings.HasPrefix(string(name), monitor) {
				t.Fatalf("the parent of process %d is %q, want %s", pid, name, monitor)
			}
			if err := unix.Kill(parent, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.lingered("db")
			if alive(pid) && len(r.volumeMounts()) == 0 && alive(pid) {
				t.Errorf("process %d lives, and its volume is not mounted", pid)
			}
			r.must(engine, "rm", "-f", "beat")
			r.Eventually("the container's process to end", func() bool { return !alive(pid) })
			if got := r.must(engine, "run", "--rm", "-v", "db:/data", busybox, "cat", "/data/f"); got != "kept" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var state string
	if _, err := fmt.Sscan(rest, &state, &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}
