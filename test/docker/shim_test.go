//go:build docker

package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The monitor of a container dies while the engine starts the container, while it runs, or while
// the engine stops it: the volume stays while a process has it, and goes afterwards.
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
			r.must(engine, "run", "--rm", "-v", "db:/data", busybox, "sh", "-c", "echo kept > /data/f; sync")
			args := []string{
				"run", "-d", "--name", "beat", "-v", "db:/data", busybox, "sh", "-c", "trap : TERM; while :; do echo x > /data/beat; sleep 0.1; done",
			}
			for _, moment := range []string{"start", "run", "stop"} {
				if moment == "start" {
					r.killedMeanwhile(monitor, engine, args...)
				} else {
					r.must(engine, args...)
				}
				if moment == "run" {
					r.killMonitor(monitor)
				}
				if moment == "stop" {
					r.killedMeanwhile(monitor, engine, "stop", "-t", "1", "beat")
				}
				r.lingered("db")
				if users := r.users("/data"); len(users) > 0 && len(r.volumeMounts()) == 0 && len(r.users("/data")) > 0 {
					t.Errorf("%s: processes %d live, and their volume is not mounted", moment, users)
				}
				r.must(engine, "rm", "-f", "beat")
				r.Eventually("the container's processes to end", func() bool { return len(r.users("/data")) == 0 })
				if got := r.must(engine, "run", "--rm", "-v", "db:/data", busybox, "cat", "/data/f"); got != "kept" {
					t.Errorf("%s: got %q", moment, got)
				}
			}
		})
	}
}

// killedMeanwhile runs a command of the engine, which may fail, and kills the monitor during it.
func (r *rig) killedMeanwhile(monitor, engine string, args ...string) {
	r.T.Helper()
	cmd := r.command(engine, args...)
	if err := cmd.Start(); err != nil {
		r.T.Fatal(err)
	}
	r.killMonitor(monitor)
	if err := cmd.Wait(); err != nil {
		r.T.Logf("%s %v, whose monitor was killed: %v", engine, args, err)
	}
}

// killMonitor kills the monitor of this rig's container as soon as it exists.
func (r *rig) killMonitor(monitor string) {
	r.T.Helper()
	r.Eventually(monitor+" to be there", func() bool {
		for _, pid := range processes(r.T) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // an ended process has none
			if strings.HasPrefix(string(name), monitor) && strings.Contains(r.words(pid), r.Dir) {
				return unix.Kill(pid, unix.SIGKILL) == nil
			}
		}
		return false
	})
}

// users returns the processes with a mount at path. Only containers have one, and no other test
// runs in parallel.
func (r *rig) users(path string) (pids []int) {
	r.T.Helper()
	for _, pid := range processes(r.T) {
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)) // an ended process has none
		for line := range strings.Lines(string(table)) {
			if f := strings.Fields(line); f[4] == path {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func processes(t *testing.T) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
