//go:build docker

package docker

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// every has each request be a step, and not only those that change something.
var every = flag.Bool("every", false, "kill at every request, also those that change nothing")

// life is one volume and two containers. Each command is repeated when something was killed
// below it.
type life struct {
	*rig
	engine, volume string
	killed         atomic.Bool
	// meanwhile is what else happens while the container runs; nil for nothing.
	meanwhile func(container string)
}

// TestKilledAtEveryStep kills csi-volmgr, or the engine, before each request that the engine
// makes and after its answer: no volume is unmounted below a process that lives, no data is
// lost, no volume is staged that is staged, and in the end nothing is left.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.startDocker("--live-restore")
	r.startPodman()
	var all []*life
	for _, engine := range []string{"docker", "podman"} {
		steps := r.discover(engine)
		t.Logf("%s: %d steps: %v", engine, len(steps), steps)
		for _, victim := range []string{"csi-volmgr", engine} {
			for i := range steps {
				l := &life{rig: r, engine: engine, volume: fmt.Sprintf("%.1s-%.1s-%d", engine, victim, i)}
				all = append(all, l)
				t.Logf("%s: %s is killed %s", l.volume, victim, steps[i])
				l.live(l.killAt(victim, i))
			}
			r.killedInRemoval(engine, victim)
		}
	}
	r.allGo(all)
	r.alternate()
}

// discover lives one life and returns its steps.
func (r *rig) discover(engine string) (steps []step) {
	l := &life{rig: r, engine: engine, volume: engine[:1] + "-discover"}
	l.live(func(s step) bool {
		if isStep(s) {
			steps = append(steps, s)
		}
		return true
	})
	r.must(engine, "volume", "rm", l.volume)
	return steps
}

func isStep(s step) bool {
	switch s.method {
	case "VolumeDriver.Create", "VolumeDriver.Mount", "VolumeDriver.Unmount", "VolumeDriver.Remove":
		return true
	}
	return *every
}

// killAt kills the victim at one of the steps that are still to come. Its request, or the
// answer to that, is lost.
func (l *life) killAt(victim string, at int) func(step) bool {
	n := 0
	return func(s step) bool {
		if !isStep(s) {
			return true
		}
		n++
		if n-1 != at {
			return true
		}
		l.killed.Store(true)
		if victim == "csi-volmgr" {
			l.daemon.Crash() // it is supervised
		} else {
			unix.Kill(s.pid, unix.SIGKILL) // it has a request under way, so it lives
		}
		return false
	}
}

// killedInRemoval kills the victim before and after the removal of a volume: the volume goes
// all the same, and its storage as well.
func (r *rig) killedInRemoval(engine, victim string) {
	r.T.Helper()
	for i, when := range []string{"before", "after"} {
		l := &life{rig: r, engine: engine, volume: fmt.Sprintf("%.1s-%.1s-%s", engine, victim, when)}
		l.up() // csi-volmgr may be about to begin again after the life before
		l.do(l.createArgs(l.volume, "size=16Mi", "reclaim=Delete")...)
		l.proxy.watch(l.killAt(victim, i))
		l.do("volume", "rm", l.volume)
		l.proxy.watch(nil)
		if !l.killed.Load() {
			r.T.Errorf("%s: no removal reached csi-volmgr", l.volume)
		}
		r.up()
		r.Eventually("volume "+l.volume+" to be gone", func() bool {
			return !strings.Contains(r.ask("VolumeDriver.List", ""), l.volume)
		})
	}
}

func (l *life) live(at func(step) bool) {
	l.T.Helper()
	c := "c-" + l.volume
	script := "echo line >> /data/log; sync; while :; do echo x > /data/beat; sleep 0.1; done"
	l.up() // csi-volmgr may be about to begin again after the life before
	l.proxy.watch(at)
	l.do(l.createArgs(l.volume, "size=16Mi")...)
	l.do("run", "-d", "--name", c, "-v", l.volume+":/data", busybox, "sh", "-c", script)
	if got := l.do("exec", c, "cat", "/data/log"); !strings.HasPrefix(got, "line") {
		l.T.Errorf("%s: the container reads %q", l.volume, got)
	}
	pid := l.pid(l.engine, c)
	if l.meanwhile != nil {
		l.meanwhile(c)
	}
	if !l.mountedFor(pid) {
		l.T.Errorf("%s: the volume of process %d is not mounted on the host: %q", l.volume, pid, l.volumeMounts())
	}
	l.do("stop", "-t", "0", c)
	if alive(pid) {
		l.T.Errorf("%s: process %d lives after its container was stopped", l.volume, pid)
	}
	l.do("rm", "-f", c)
	if got := l.do("run", "--rm", "--name", c, "-v", l.volume+":/data", busybox, "cat", "/data/log"); !strings.HasPrefix(got, "line") {
		l.T.Errorf("%s: data is lost: the next container reads %q", l.volume, got)
	}
	l.proxy.watch(nil)
}

// mountedFor reports whether the device that a process has at /data is mounted on the host.
func (l *life) mountedFor(pid int) bool {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		l.T.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if f[4] != "/data" {
			continue
		}
		return slices.ContainsFunc(l.MountTable(), func(host []string) bool {
			return host[2] == f[2] && strings.HasPrefix(host[4], l.Root+"/")
		})
	}
	l.T.Fatalf("process %d has no /data", pid)
	return false
}

// do runs a command of the engine until it succeeds. Only a kill may make it fail.
func (l *life) do(args ...string) string {
	l.T.Helper()
	for deadline := time.Now().Add(4 * time.Minute); ; {
		got := l.run(l.engine, args...)
		out := strings.TrimSpace(got.Stdout)
		switch said := got.Stderr; {
		case got.Code == 0:
			return out
		case !l.killed.Load():
			l.T.Fatalf("%s %v: exit code %d\n%s%s", l.engine, args, got.Code, out, said)
		case args[0] == "rm" && strings.Contains(strings.ToLower(said), "no such container"):
			return out
		case args[0] == "volume" && args[1] == "rm" && strings.Contains(strings.ToLower(said), "no such volume"):
			return out
		case args[0] == "volume" && args[1] == "create" && strings.Contains(said, "already exists"):
			return out
		case time.Now().After(deadline):
			l.T.Fatalf("%s %v fails although nothing was killed again: %s", l.engine, args, said)
		}
		l.recover(args)
	}
}

// recover starts dockerd again where it was killed, waits until csi-volmgr answers, and removes
// a container that was half made.
func (l *life) recover(args []string) {
	l.T.Helper()
	if !l.dockerd.Runs() {
		l.startDocker("--live-restore")
	}
	l.up()
	if i := slices.Index(args, "--name"); i >= 0 {
		l.run(l.engine, "rm", "-f", args[i+1])
	}
}

// allGo removes the volumes of all lives. A use whose end an engine never told is ended by gc,
// when its container has had the time to start; then nothing is left.
func (r *rig) allGo(all []*life) {
	r.T.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for _, l := range all {
		for {
			got := r.run(l.engine, "volume", "rm", l.volume)
			if got.Code == 0 || strings.Contains(strings.ToLower(got.Stderr), "no such volume") {
				break
			}
			if time.Now().After(deadline) {
				r.T.Errorf("volume %s is not removed: %s", l.volume, got.Stderr)
				break
			}
			r.Do("", "gc", "--yes")
			time.Sleep(5 * time.Second) // gc has no event: a container may take two minutes to start
		}
	}
	r.nothingMounted()
}

// usesEnd waits until nothing is mounted, and has gc end the uses whose end an engine never told.
func (r *rig) usesEnd() {
	r.T.Helper()
	for deadline := time.Now().Add(5 * time.Minute); len(r.volumeMounts()) > 0 || len(r.Loops()) > 0; {
		if time.Now().After(deadline) {
			r.T.Fatalf("mounted: %q, attached: %q", r.volumeMounts(), r.Loops())
		}
		r.CLI("", "gc", "--yes") // csi-volmgr may be killed in it
		time.Sleep(5 * time.Second)
	}
}

// alternate fails where a volume was staged twice without an Unstage between. A csi-volmgr that
// was killed before its journal had a Stage's success repeats it, as CSI lets it (ADR 3).
func (r *rig) alternate() {
	r.T.Helper()
	b, err := os.ReadFile(r.Path("daemon.log"))
	if err != nil {
		r.T.Fatal(err)
	}
	staged := map[string]int{}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, `msg="daemon starts"`) {
			for volume := range staged {
				staged[volume] = 0
			}
		}
		if !strings.Contains(line, "csi call ended") || !strings.Contains(line, "code=OK ") {
			continue
		}
		_, volume, _ := strings.Cut(line, " volume=")
		volume = strings.TrimSpace(volume)
		switch {
		case strings.Contains(line, "call=NodeStageVolume "):
			staged[volume]++
		case strings.Contains(line, "call=NodeUnstageVolume "):
			staged[volume] = 0
		}
		if staged[volume] > 1 {
			r.T.Errorf("volume %s is staged where it is staged: %s", volume, line)
		}
	}
	if len(staged) == 0 {
		r.T.Error("the log has no Stage")
	}
}
