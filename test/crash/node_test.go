package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/localdriver"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// learn marks a phase in which places are noted and nothing is killed.
const learn = "learn:"

// phase is what happens to a node between two kills.
type phase struct {
	name string
	// ready is what the test does before the victim starts; nil is nothing.
	ready func()
	// early: the place counts from the victim's start on, and not only once it answers.
	early bool
	// command is the victim's arguments where it is a command that ends by itself.
	command []string
	// step is made until it succeeds; after a command it has to at once.
	step func() error
	// stop: the victim is told to end then, while the place still counts.
	stop bool
}

// node is a daemon, and a local driver in it or beside it, with their directories.
type node struct {
	*harness.Node
	env    []string
	phases []phase
	// end is what there may be of files and records in the end.
	end   func()
	flags []string // of the daemon, besides those that each has
	// apart: the driver is a process of its own. driverDies: it is the victim.
	apart, driverDies bool
	damages           int // of the journal, by the test
	// hits is where the victim notes the places that it comes to; "" for nowhere.
	hits           string
	daemon, driver *harness.Process
	asking         context.Context // of the step that is being made

	plain, raw string // disks of 16 MiB with nothing on them
	server     *fakeapi.Server
	text       string            // that the API server's configMap has
	written    map[string]string // files of the test's own, by volume
	deleted    map[string]bool   // claims of which the daemon said so
	empty      time.Time         // since when it lists none
}

func newNode(t *testing.T) *node {
	n := &node{Node: harness.NewNode(t, program, "api.sock"), deleted: map[string]bool{}}
	n.end = n.noFilesNorRecords
	for _, dir := range []string{"host", "host/disk"} {
		if err := os.Mkdir(n.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.env = append(os.Environ(), "CSI_VOLMGR_FAILPOINT_ARM="+n.Path("arm"))
	t.Cleanup(n.clean)
	return n
}

// clean runs after all processes of the test were killed.
func (n *node) clean() {
	if n.T.Failed() {
		if b, err := os.ReadFile(n.Path("log")); err == nil {
			n.T.Logf("end of the log:\n%s", b[max(0, len(b)-8000):])
		}
	}
}

// places are the flags that say where the node is, which the daemon and commands have.
func (n *node) places() []string {
	return []string{"--root-dir", n.Path("root"), "--state-dir", n.Path("state"), "--socket", n.Path("api.sock")}
}

// start starts the processes that do not run; the victim is to die at place, if that is not "".
func (n *node) start(place string) {
	if n.apart && !n.driver.Runs() {
		n.driver = n.spawn(n.driverDies, place, "local-driver", "--root-dir", n.Path("root"), "--state-dir", n.Path("state/local-driver"),
			"--node-id", "node-1", "--log-level", "debug")
	}
	if !n.daemon.Runs() {
		args := n.Daemon()
		if !n.apart {
			args = append(args, "--local-driver")
		}
		n.daemon = n.spawn(!n.driverDies, place, append(args, n.flags...)...)
	}
}

// spawn starts a process. The victim dies at place, if that is not "", and notes where it comes.
func (n *node) spawn(victim bool, place string, args ...string) *harness.Process {
	if !victim {
		place = ""
	}
	log, err := os.OpenFile(n.Path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		n.T.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "---- start %s, failpoint %q\n", args[0], place)
	cmd := exec.Command(program, args...)
	cmd.Env = append(slices.Clone(n.env), "CSI_VOLMGR_FAILPOINT="+place)
	if victim {
		cmd.Env = append(cmd.Env, "CSI_VOLMGR_FAILPOINT_LOG="+n.hits)
	}
	return harness.Start(n.T, n.Path("log"), cmd)
}

// victim is what is killed.
func (n *node) victim() *harness.Process {
	if n.driverDies {
		return n.driver
	}
	return n.daemon
}

// live is a node's life, with a kill at a place in some phases, or none in any.
// It fails the test unless everything is as wanted after each phase, and
// nothing is left in the end. It returns the phases in which the kill came.
func (n *node) live(at map[string]string) map[string]bool {
	killed := map[string]bool{}
	for _, p := range n.phases {
		arm := at[p.name]
		if at == nil {
			arm = learn + p.name
		}
		if p.command != nil {
			killed[p.name] = n.command(p, arm)
		} else {
			killed[p.name] = n.phase(p, arm, at[p.name])
		}
		n.disarm()
		if n.T.Failed() {
			n.T.Logf("in phase %s; killed at %q in %v", p.name, at, killed)
			return killed
		}
	}
	n.nothingLeft()
	if n.T.Failed() {
		n.T.Logf("killed at %q in %v", at, killed)
	}
	return killed
}

// phase lives a phase of the daemon. The victim begins it by being killed, so
// that there is a kill between phases too, and a new process is told of the place.
func (n *node) phase(p phase, arm, place string) (killed bool) {
	if v := n.victim(); v.Runs() {
		v.Kill()
	}
	if p.ready != nil {
		p.ready()
	}
	if p.early {
		n.arm(arm)
		n.start(place)
	} else {
		n.start(place)
		n.until("the daemon to answer", n.answers, nil)
		n.arm(arm)
	}
	n.until(p.name, p.step, func() {
		killed = true
		n.disarm()
		n.start("")
	})
	if v := n.victim(); p.stop && v.Runs() {
		switch err := v.Ask(); {
		case err != nil && !killed && strings.Contains(err.Error(), "killed"):
			killed = true
		case err != nil:
			n.T.Errorf("%s: %v ended: %v", p.name, v, err)
		}
	}
	return killed
}

// command lives a phase of a command, while the daemon does not run: one that
// was killed is given once more, and has to succeed.
func (n *node) command(p phase, place string) (killed bool) {
	n.daemon.Stop()
	if p.ready != nil {
		p.ready()
	}
	n.arm(place)
	for {
		v := n.spawn(true, place, p.command...)
		select {
		case <-v.Done():
		case <-time.After(harness.Patience):
			n.T.Fatalf("%s: no end after %v", p.name, harness.Patience)
		}
		if v.Err() == nil {
			break
		}
		if killed || !strings.Contains(v.Err().Error(), "killed") {
			n.T.Fatalf("%s: %v ended: %v", p.name, v, v.Err())
		}
		killed, place = true, ""
		n.disarm()
	}
	if err := p.step(); err != nil {
		n.T.Errorf("%s: %v", p.name, err)
	}
	return killed
}

func (n *node) arm(with string) {
	if err := os.WriteFile(n.Path("arm"), []byte(with), 0o600); err != nil {
		n.T.Fatal(err)
	}
}

func (n *node) disarm() {
	if err := os.Remove(n.Path("arm")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.T.Fatal(err)
	}
}

// until repeats step until it succeeds; died is called when the victim dies, which it must not if nil.
func (n *node) until(what string, step func() error, died func()) {
	deadline := time.Now().Add(harness.Patience)
	for {
		p := n.victim()
		err := n.try(p, step)
		select {
		case <-p.Done():
			if died == nil || !strings.Contains(fmt.Sprint(p.Err()), "killed") {
				n.T.Fatalf("%s: %v ended: %v", what, p, p.Err())
			}
			died()
			continue
		default:
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.T.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// try makes a step; what it asks the daemon ends when p does, which may be what the answer waits for.
func (n *node) try(p *harness.Process, step func() error) error {
	ctx, cancel := context.WithTimeout(n.T.Context(), harness.Patience)
	defer cancel()
	go func() {
		select {
		case <-p.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	n.asking = ctx
	return step()
}

func (n *node) ctx() context.Context { return n.asking }

// answers: the daemon does, and has its driver, which it has once it has read its journal:
// before that it lists nothing.
func (n *node) answers() error {
	drivers, err := n.API.Drivers(n.ctx())
	if err != nil {
		return err
	}
	for _, d := range drivers {
		if d.Name == localdriver.DefaultName && d.Up {
			return nil
		}
	}
	return fmt.Errorf("the driver is not up: %+v", drivers)
}
