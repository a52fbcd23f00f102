//go:build vm

package guest

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// systemctl start returns when the daemon reports that it is ready: it then serves
// health, on a socket that only the daemon makes.
func TestSystemdWaitsForTheDaemonToBeReady(t *testing.T) {
	n := newSystemNode(t)
	sh(t, "systemctl", "stop", daemonUnit)
	sh(t, "systemctl", "start", daemonUnit)
	answer, err := http.Get("http://127.0.0.1:9811/healthz")
	if err != nil {
		t.Fatalf("started, and not ready: %v", err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "ok\n" {
		t.Errorf("health: %q, %v", body, err)
	}
	n.want(daemonUnit, "ActiveState", "active")
	await(t, "the daemon to say that nothing is missing", func() bool { return n.show(daemonUnit, "StatusText") == "ready" })
}

// A request at the socket starts the daemon. If the daemon is being restarted, the
// next one answers the request.
func TestQuestionsWaitForTheDaemon(t *testing.T) {
	n := newSystemNode(t)
	sh(t, "systemctl", "stop", daemonUnit)
	n.want(daemonUnit, "ActiveState", "inactive")
	sh(t, "csi-volmgr", "get", "pods")
	n.want(daemonUnit, "ActiveState", "active")

	enough, ended := make(chan struct{}), make(chan struct{})
	asked := 0
	go func() {
		defer close(ended)
		for {
			select {
			case <-enough:
				return
			default:
			}
			c := client.New(apiSocket) // a new connection
			if _, err := c.Version(t.Context()); err != nil {
				t.Errorf("question %d: %v", asked, err)
			}
			c.Close()
			asked++
		}
	}()
	for range 2 {
		before := n.show(daemonUnit, "MainPID")
		sh(t, "systemctl", "restart", daemonUnit)
		if after := n.show(daemonUnit, "MainPID"); after == before {
			t.Errorf("process %s was not restarted", before)
		}
	}
	close(enough)
	<-ended
	if t.Logf("%d questions during two restarts", asked); asked == 0 {
		t.Error("nothing was asked")
	}
}

// A service that requires the unit of a volume starts once the volume is mounted
// and verified. It does not start if the volume is late.
func TestServiceWaitsForItsVolume(t *testing.T) {
	n := newSystemNode(t)
	if out, err := n.try("systemctl", "start", "nobody.service"); err == nil {
		t.Errorf("a service without its volume was started: %s", out)
	}
	if _, err := os.Stat("/run/nobody.started"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a service without its volume ran: %v", err)
	}

	n.apply()
	sh(t, "systemctl", "start", "--no-block", "web.service")
	await(t, "the unit of the volume to wait", func() bool { return n.show(gateUnit, "ActiveState") == "activating" })
	n.want("web.service", "ActiveState", "inactive")
	sh(t, "systemctl", "start", driverUnit)
	await(t, "the service", func() bool { return n.show("web.service", "ActiveState") == "active" })
	published, started := n.ended("NodePublishVolume"), n.time("web.service", "ExecMainStartTimestamp")
	if started.Before(published) {
		t.Errorf("the service was started at %v, before its volume was published at %v", started, published)
	}
	target := n.target()
	await(t, "the service to be in its volume", func() bool {
		cwd, err := os.Readlink("/proc/" + n.show("web.service", "MainPID") + "/cwd")
		return err == nil && cwd == target
	})
	if mountOf(t, target) == "" {
		t.Errorf("nothing is mounted at %s", target)
	}
}

// systemd replaces a daemon that stops sending watchdog signals. After that and
// after a restart, every mount is the same mount, and the daemon only asks the
// driver for its capabilities.
func TestWatchdogReplacesTheDaemonUnderMounts(t *testing.T) {
	n := newSystemNode(t)
	n.web()
	before, calls := n.table(), n.calls()
	if len(before) < 2 {
		t.Fatalf("mounts: %q, want one that is staged and one that is published", before)
	}
	sh(t, "systemctl", "restart", daemonUnit)
	same := func(after string) {
		t.Helper()
		await(t, "the daemon to know its driver", n.driverUp)
		sh(t, "csi-volmgr", "wait", "pod", "web", "--for=verified", "--timeout="+patience.String())
		if table := n.table(); !slices.Equal(before, table) {
			t.Errorf("%s: the mounts\n%s\nbecame\n%s", after, strings.Join(before, "\n"), strings.Join(table, "\n"))
		}
		if made := n.calls(); !slices.Equal(calls, made) {
			t.Errorf("%s: calls made: %q", after, made[len(calls):])
		}
		n.want("web.service", "ActiveState", "active")
	}
	same("after a restart")

	pid, restarts := n.show(daemonUnit, "MainPID"), n.show(daemonUnit, "NRestarts")
	if restarts != "0" {
		t.Fatalf("restarted %s times before it was stopped", restarts)
	}
	sh(t, "kill", "-STOP", pid)
	await(t, "systemd to replace the daemon", func() bool {
		return n.show(daemonUnit, "NRestarts") != "0" && n.show(daemonUnit, "ActiveState") == "active" && n.show(daemonUnit, "MainPID") != pid
	})
	if !slices.ContainsFunc(n.journal(), func(e entry) bool {
		return e.Unit == daemonUnit && strings.HasPrefix(e.Message, daemonUnit+": Watchdog timeout")
	}) {
		t.Error("the journal says nothing of the watchdog")
	}
	same("after the watchdog")
}

// A soft-reboot and rescue.target stop the units and start them again in one boot of the
// kernel: what the drain unit emptied is mounted again, and a plain drain stays.
func TestWhatTheDrainUnitEmptiedIsMountedAgain(t *testing.T) {
	n := newSystemNode(t)
	n.web()
	sh(t, "systemctl", "stop", "web.service", drainUnit)
	if table := n.table(); len(table) > 0 {
		t.Errorf("after the drain unit has stopped: %q", table)
	}
	sh(t, "systemctl", "restart", daemonUnit)
	if table := n.table(); len(table) > 0 {
		t.Errorf("before the drain unit starts: %q", table)
	}
	sh(t, "systemctl", "start", drainUnit)
	n.web()
	sh(t, "csi-volmgr", "drain", "--reason=new disks")
	sh(t, "systemctl", "stop", "web.service", drainUnit)
	sh(t, "systemctl", "start", drainUnit)
	if d, err := n.api.Draining(t.Context()); err != nil || d.Mode != server.DrainHold || d.Reason != "new disks" {
		t.Errorf("the operator's own drain is %+v, %v", d, err)
	}
	sh(t, "csi-volmgr", "undrain")
	n.web()
}

// When the machine stops, units stop in order: first the service that uses the
// volume, which can write until then. Then the volume is unpublished and unstaged.
// Then the daemon stops, and last the driver.
func TestUnitsStopInOrder(t *testing.T) {
	n := newSystemNode(t)
	n.web()
	sh(t, "systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", stopTarget)
	await(t, "everything to stop", func() bool { return n.show(stopTarget, "ActiveState") == "active" })
	if table := n.table(); len(table) > 0 {
		t.Errorf("still mounted: %q", table)
	}
	said, err := filepath.Glob(strictDir + "/volumes/*/data/last")
	if err != nil || len(said) != 1 || read(t, said[0]) != "bye" {
		t.Errorf("what the service wrote last is not there: %q, %v", said, err)
	}
	order := []moment{
		{"the service has stopped", n.logged("Stopped", "web.service")},
		{"the node is to be emptied", n.logged("Stopping", drainUnit)},
		{"NodeUnpublishVolume begins", n.begun("NodeUnpublishVolume")},
		{"NodeUnpublishVolume has ended", n.ended("NodeUnpublishVolume")},
		{"NodeUnstageVolume begins", n.begun("NodeUnstageVolume")},
		{"NodeUnstageVolume has ended", n.ended("NodeUnstageVolume")},
		{"the node is empty", n.logged("Stopped", drainUnit)},
		{"the daemon is to stop", n.logged("Stopping", daemonUnit)},
		{"the daemon has stopped", n.logged("Stopped", daemonUnit)},
		{"the driver is to stop", n.logged("Stopping", driverUnit)},
	}
	for i, m := range order {
		t.Logf("%s %s", m.at.Format(time.StampMicro), m.what)
		if i > 0 && m.at.Before(order[i-1].at) {
			t.Errorf("%s before %s", m.what, order[i-1].what)
		}
	}
	n.verdict()
}
