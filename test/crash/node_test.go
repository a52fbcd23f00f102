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

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// learn marks a phase in which places are noted and nothing is killed.
const learn = "learn:"

// phase is a part of a node's life with at most one kill.
type phase struct {
	name string
	// ready, if not nil, prepares the node before the victim starts.
	ready func()
	// early arms the failpoint before the victim starts, not only once it answers.
	early bool
	// command is the victim's arguments if it is a command that ends by itself.
	command []string
	// step is repeated until it succeeds. After a command it must succeed at once.
	step func() error
	// stop asks the victim to end after step, while the failpoint is still armed.
	stop bool
}

// node is a daemon with its directories, and a local driver inside the daemon or beside it.
type node struct {
	*harness.Node
	env    []string
	phases []phase
	// end checks that no unexpected file or record is left in the end.
	end   func()
	flags []string // of the daemon, besides those of every node
	// apart: the driver is a process of its own. driverDies: the driver is the victim.
	apart, driverDies bool
	damages           int // how often the test damaged the journal
	// hits is the file into which the victim writes the places that it reaches; "" for
	// none.
	hits           string
	daemon, driver *harness.Process
	asking         context.Context // of the current step

	plain, raw string // empty disks of 16 MiB
	server     *fakeapi.Server
	text       string            // the content of the API server's configMap
	written    map[string]string // files that the test wrote, by volume
	deleted    map[string]bool   // claims whose deletion the daemon confirmed
	empty      time.Time         // since when the daemon lists none
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
			n.T.Logf("end of the log:\n%s", b[max(0, len(b)-64000):])
		}
	}
}

// places are the flags with the node's paths, for the daemon and for commands.
func (n *node) places() []string {
	return []string{"--root-dir", n.Path("root"), "--state-dir", n.Path("state"), "--socket", n.Path("api.sock")}
}

// start starts the processes that do not run. If place is not "", the victim dies there.
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

// spawn starts a process. If it is the victim, it dies at place, if that is not "", and
// notes the places that it reaches.
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

// victim is the process that gets killed.
func (n *node) victim() *harness.Process {
	if n.driverDies {
		return n.driver
	}
	return n.daemon
}

// live runs a node's life, with a kill at a place in each phase of at; if at is nil,
// nothing is killed. It fails the test if a phase does not reach its goal, or if anything
// is left in the end. It returns the phases in which the kill came.
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

// phase runs a phase of the daemon. It first kills the victim, so that there is a kill
// between phases too, and the new process learns the place where it dies.
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

// command runs a phase of a command while the daemon does not run. If the command is
// killed, it is run once more and must succeed.
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

// until repeats step until it succeeds. It calls died when the victim dies; if died is nil,
// the victim must not die.
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
			p.Stacks()
			return
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// try runs step. The step's requests end when p ends, since their answers may depend on p.
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

// answers checks that the daemon answers and has its driver. A daemon that has not read its
// journal yet lists no driver.
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
