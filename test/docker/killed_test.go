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

// every makes each request a step, not only those that change something.
var every = flag.Bool("every", false, "kill at every request, also those that change nothing")

// life is the life of one volume with two containers. A command is repeated if something was killed
// while it ran.
type life struct {
	*rig
	engine, volume string
	killed         atomic.Bool
	// meanwhile runs while the container does; nil for nothing.
	meanwhile func(container string)
}

// TestKilledAtEveryStep kills csi-volmgr, or the engine, before each request of the engine and
// after its answer: no volume is unmounted below a live process, no data is lost, no staged volume
// is staged again, and in the end nothing is left.
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

// discover lives one life without kills and returns its steps.
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

// killAt returns a function that kills the victim at step number at of those to come. The request,
// or its answer, is lost.
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
			l.daemon.Crash() // its supervisor restarts it
		} else {
			unix.Kill(s.pid, unix.SIGKILL) // it has a request in flight, so it is alive
		}
		return false
	}
}

// killedInRemoval kills the victim before and after the removal of a volume: the volume and its
// storage are removed nevertheless.
func (r *rig) killedInRemoval(engine, victim string) {
	r.T.Helper()
	for i, when := range []string{"before", "after"} {
		l := &life{rig: r, engine: engine, volume: fmt.Sprintf("%.1s-%.1s-%s", engine, victim, when)}
		l.up() // csi-volmgr may still be restarting after the previous life
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
	l.up() // csi-volmgr may still be restarting after the previous life
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

// mountedFor reports whether the device that a process has mounted at /data is mounted on the host.
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

// do runs a command of the engine until it succeeds. Only a kill may make the command fail.
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

// recover restarts dockerd if it was killed, waits until csi-volmgr answers, and removes a
// container that the engine may have half made.
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

// allGo removes the volumes of all lives. If an engine never reported the end of a use, gc ends
// that use once its container has had the time to start. Then nothing is left.
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
			r.Do("", "gc", "--yes", "--lost-uses")
			time.Sleep(5 * time.Second) // gc triggers no event: a container may take two minutes to start
		}
	}
	r.nothingMounted()
}

// usesEnd waits until nothing is mounted. gc ends the uses whose end an engine never reported.
func (r *rig) usesEnd() {
	r.T.Helper()
	for deadline := time.Now().Add(5 * time.Minute); len(r.volumeMounts()) > 0 || len(r.Loops()) > 0; {
		if time.Now().After(deadline) {
			r.T.Fatalf("mounted: %q, attached: %q", r.volumeMounts(), r.Loops())
		}
		r.CLI("", "gc", "--yes", "--lost-uses") // csi-volmgr may be killed during it
		time.Sleep(5 * time.Second)
	}
}

// alternate fails the test if a volume was staged twice without an Unstage between. If csi-volmgr
// was killed before it journaled a Stage's success, it repeats the Stage, as CSI allows (ADR 3).
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
