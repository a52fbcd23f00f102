package crash

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest"
	"github.com/csi-volmgr/csi-volmgr/pkg/localdriver"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	patience = 60 * time.Second
	// learn marks a phase in which places are noted and nothing is killed.
	learn = "learn:"
)

// phases are what happens to a node, in order.
var phases = []string{"start", "make", "restart", "change", "damage", "remove", "delete"}

// process is a daemon or a driver.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended, with err
	err  error
}

// kill is SIGKILL.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// node is a daemon, and a local driver in it or beside it, with their directories.
type node struct {
	t   *testing.T
	dir string
	api *client.Client
	env []string
	// apart: the driver is a process of its own, and that is the one to be killed.
	apart          bool
	damages        int    // of the journal, by the test
	hits           string // where the victim notes the places that it comes to; "" for nowhere
	daemon, driver *process
	asking         context.Context // of the step that is being made

	layouts    string          // of OCI images
	plain, raw string          // disks of 16 MiB with nothing on them
	deleted    map[string]bool // claims of which the daemon said so
	empty      time.Time       // since when it lists none
}

func newNode(t *testing.T, apart bool) *node {
	dir, err := os.MkdirTemp("", "crash-")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, apart: apart, deleted: map[string]bool{}}
	if n.layouts, err = filepath.Abs("../../examples/image"); err != nil {
		t.Fatal(err)
	}
	n.plain, n.raw = drivertest.Device(t, ""), drivertest.Device(t, "")
	n.api = client.New(n.path("api.sock"))
	for _, dir := range []string{"root", "host", "host/disk"} {
		if err := os.Mkdir(n.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.env = append(os.Environ(), "CSI_VOLMGR_FAILPOINT_ARM="+n.path("arm"))
	t.Cleanup(n.clean)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) clean() {
	n.api.Close()
	for _, p := range []*process{n.daemon, n.driver} {
		if p != nil {
			p.kill()
		}
	}
	if n.t.Failed() {
		if b, err := os.ReadFile(n.path("log")); err == nil {
			n.t.Logf("end of the log:\n%s", b[max(0, len(b)-8000):])
		}
	}
	for _, m := range n.mounts() {
		unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	for _, dev := range n.loops() {
		if f, err := os.Open(dev); err == nil {
			unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
			f.Close()
		}
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
}

// start starts what is to be killed at place, if that is not "", and what is not there.
func (n *node) start(place string) {
	args := []string{
		"run", "--root-dir", n.path("root"), "--state-dir", n.path("state"), "--socket", n.path("api.sock"),
		"--http-address", "off", "--node-name", "node-1", "--log-level", "debug",
		"--host-path-allow", n.path("host"), "--host-path-allow", "/dev", "--image-layouts", n.layouts,
	}
	if !n.apart {
		n.daemon = n.spawn(place, append(args, "--local-driver")...)
		return
	}
	n.driver = n.spawn(place, "local-driver", "--root-dir", n.path("root"), "--state-dir", n.path("state/local-driver"),
		"--node-id", "node-1", "--log-level", "debug")
	if n.daemon == nil {
		n.daemon = n.spawn("", args...)
	}
}

func (n *node) spawn(place string, args ...string) *process {
	log, err := os.OpenFile(n.path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "---- start %s, failpoint %q\n", args[0], place)
	cmd := exec.Command(program, args...)
	cmd.Env = append(slices.Clone(n.env), "CSI_VOLMGR_FAILPOINT="+place)
	if n.apart == (args[0] == "local-driver") {
		cmd.Env = append(cmd.Env, "CSI_VOLMGR_FAILPOINT_LOG="+n.hits)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p
}

// victim is what is killed.
func (n *node) victim() *process {
	if n.apart {
		return n.driver
	}
	return n.daemon
}

// live is a node's life, with a kill at a place in some phases, or none in any.
// It fails the test unless everything is as wanted after each phase, and
// nothing is left in the end. It returns the phases in which the kill came.
func (n *node) live(at map[string]string) map[string]bool {
	killed := map[string]bool{}
	steps := map[string]func() error{
		"start": n.answers, "make": n.make, "restart": n.there, "change": n.change, "damage": n.change, "remove": n.remove, "delete": n.delete,
	}
	for _, phase := range phases {
		if p := n.victim(); p != nil {
			p.kill() // a kill between phases, too: and the failpoint is told to a new process
		}
		arm := at[phase]
		if at == nil {
			arm = learn + phase
		}
		if phase == "damage" {
			n.damage()
		}
		if slices.Contains([]string{"start", "restart", "damage"}, phase) {
			n.arm(arm)
			n.start(at[phase])
		} else {
			n.start(at[phase])
			n.until("the daemon to answer", n.answers, nil)
			n.arm(arm)
		}
		n.until(phase, steps[phase], func() {
			killed[phase] = true
			n.disarm()
			n.start("")
		})
		n.disarm()
		if n.t.Failed() {
			n.t.Logf("in phase %s; killed at %q in %v", phase, at, killed)
			return killed
		}
	}
	n.nothingLeft()
	if n.t.Failed() {
		n.t.Logf("killed at %q in %v", at, killed)
	}
	return killed
}

func (n *node) arm(with string) {
	if err := os.WriteFile(n.path("arm"), []byte(with), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) disarm() {
	if err := os.Remove(n.path("arm")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
}

// until repeats step until it succeeds; died is called when the victim dies, which it must not if nil.
func (n *node) until(what string, step func() error, died func()) {
	deadline := time.Now().Add(patience)
	for {
		p := n.victim()
		err := n.try(p, step)
		select {
		case <-p.done:
			if died == nil || !strings.Contains(fmt.Sprint(p.err), "killed") {
				n.t.Fatalf("%s: %v ended: %v", what, p.cmd.Args, p.err)
			}
			died()
			continue
		default:
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// try makes a step; what it asks the daemon ends when p does, which may be what the answer waits for.
func (n *node) try(p *process, step func() error) error {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	n.asking = ctx
	return step()
}

func (n *node) ctx() context.Context { return n.asking }

// answers: the daemon does, and has its driver.
func (n *node) answers() error {
	drivers, err := n.api.Drivers(n.ctx())
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

func (n *node) apply(size, text string) error {
	_, err := n.api.Apply(n.ctx(), n.manifest(objects+podObject, size, text))
	return err
}

func (n *node) make() error {
	if err := n.apply("64Mi", "hello"); err != nil {
		return err
	}
	return n.there()
}

// there: the pod has its volumes, nothing is being done, and their content is right.
func (n *node) there() error {
	p, err := n.api.Pod(n.ctx(), "default", "web")
	if err != nil {
		return err
	}
	if !p.Ready || len(p.Volumes) != 15 {
		return fmt.Errorf("the pod is not ready: %+v", p)
	}
	for _, v := range p.Volumes {
		if v.Step != "" {
			return fmt.Errorf("volume %v is at step %s, %s", v.Names, v.Step, v.BlockedBy)
		}
	}
	claims, err := n.api.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Volume == "" {
			return fmt.Errorf("claim %s has no volume: %+v", c.Name, c)
		}
	}
	return errors.Join(n.holds("hello"), n.contains())
}

func (n *node) holds(text string) error {
	mounts, err := n.api.Mounts(n.ctx(), "default", "web")
	if err != nil {
		return err
	}
	for _, m := range mounts {
		file := map[string]string{"settings": "greeting", "key": "key", "all": "key"}[m.Name]
		if file == "" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(m.HostPath, file))
		if err != nil || string(b) != text {
			return fmt.Errorf("%s/%s is %q, %v, want %q", m.Name, file, b, err, text)
		}
	}
	return nil
}

// change gives the pod new content and a larger volume.
func (n *node) change() error {
	if err := n.apply("96Mi", "goodbye"); err != nil {
		return err
	}
	if err := errors.Join(n.holds("goodbye"), n.contains()); err != nil {
		return err
	}
	claims, err := n.api.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Name == "data" && c.NodeBytes < 96<<20 {
			return fmt.Errorf("the claim has %d bytes: %+v", c.NodeBytes, c)
		}
	}
	return nil
}

// remove lets the pod go while nothing may come.
func (n *node) remove() error {
	if _, err := n.api.Drain(n.ctx(), server.DrainHold, ""); err != nil {
		return err
	}
	if err := n.api.DeletePod(n.ctx(), "default", "web"); err != nil && !errors.Is(err, server.ErrNotFound) {
		return err
	}
	return errors.Join(n.noVolumes(), n.api.Undrain(n.ctx()))
}

// noVolumes fails while there is a volume.
func (n *node) noVolumes() error {
	vs, err := n.api.Volumes(n.ctx())
	if err != nil {
		return err
	}
	if len(vs) > 0 {
		return fmt.Errorf("%d volumes are left: %+v", len(vs), vs)
	}
	return nil
}

func (n *node) delete() error {
	claims, err := n.api.Claims(n.ctx())
	if err != nil {
		return err
	}
	for _, name := range []string{"data", "disk", "copy"} {
		if !n.deleted[name] {
			_, err := n.api.DeleteClaim(n.ctx(), server.ClaimDeletion{Namespace: "default", Name: name})
			n.deleted[name] = err == nil
		}
	}
	pvs, err := n.api.PersistentVolumes(n.ctx())
	if err != nil {
		return err
	}
	// Those of the node's own disks are withdrawn.
	claims = slices.DeleteFunc(claims, func(c server.ClaimStatus) bool { return slices.Contains(own, c.Name) })
	pvs = slices.DeleteFunc(pvs, func(v server.PVStatus) bool { return slices.Contains(own, v.Name) })
	if len(claims)+len(pvs) > 0 {
		n.empty = time.Time{}
		return fmt.Errorf("left: %+v, %+v", claims, pvs)
	}
	if n.empty.IsZero() {
		n.empty = time.Now()
	}
	// A daemon that has just started lists nothing before it has read its own
	// state; and one that was killed may not have said that it deletes.
	if !n.deleted["data"] || !n.deleted["disk"] || !n.deleted["copy"] {
		if time.Since(n.empty) < 2*time.Second {
			return errors.New("the claims are not known to be deleted")
		}
	}
	if _, err = n.api.Withdraw(n.ctx(), n.manifest(objects, "96Mi", "goodbye")); err != nil {
		return err
	}
	// A kill right after the last removal loses that it succeeded, which is
	// written later: then it is made once more, by the daemon of this phase.
	return n.noVolumes()
}

// nothingLeft ends the daemon and looks for what is left of any volume.
func (n *node) nothingLeft() {
	for _, p := range []*process{n.driver, n.daemon} {
		if p == nil {
			continue
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			n.t.Fatal(err)
		}
		if <-p.done; p.err != nil {
			n.t.Errorf("%v ended with %v", p.cmd.Args, p.err)
		}
	}
	for _, m := range n.mounts() {
		n.t.Errorf("mount left: %s", m)
	}
	for _, dev := range n.loops() {
		n.t.Errorf("loop device left: %s", dev)
	}
	n.noFiles()
	files, err := filepath.Glob(n.path("state/*.db"))
	if err != nil || len(files) != 1 {
		n.t.Fatalf("journal: %q, %v", files, err)
	}
	journal, err := state.OpenBolt(files[0])
	if err != nil {
		n.t.Fatal(err)
	}
	defer journal.Close()
	loaded, err := journal.Load(context.Background())
	damaged, globErr := filepath.Glob(files[0] + ".damaged*")
	if err != nil || globErr != nil || len(damaged) != n.damages || (journal.Recovery().Why != "") != (n.damages > 0) {
		n.t.Errorf("the journal was damaged %d times by the test, and says %q, %v: %v, %v", n.damages, journal.Recovery().Why, damaged, err, globErr)
	}
	for id := range loaded.Volumes {
		n.t.Errorf("record left: %s", id)
	}
	for id, why := range loaded.Quarantined {
		n.t.Errorf("record that cannot be read: %s: %s", id, why)
	}
}

// noFiles fails the test for every file, and every directory of a volume, that is left.
func (n *node) noFiles() {
	keep := []string{"pods", "plugins", "plugins_registry", "plugins/kubernetes.io", "plugins/kubernetes.io/image", "plugins/kubernetes.io/csi", "plugins/local.csi-volmgr.dev"}
	err := filepath.WalkDir(n.path("root"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(n.path("root"), path)
		if err != nil || rel == "." || slices.Contains(keep, rel) || d.Type()&fs.ModeSocket != 0 {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(rel, "plugins/kubernetes.io/csi/volumeDevices") && strings.Count(rel, "/") < 5 || filepath.Dir(rel) == "plugins/kubernetes.io/csi") {
			return nil
		}
		n.t.Errorf("left: %s", rel)
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
	err = filepath.WalkDir(n.path("state"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(filepath.Base(path), ".db") && !strings.HasSuffix(path, ".lock") && !slices.Contains([]string{"lock", "audit.log", "objects.log"}, filepath.Base(path)) {
			n.t.Errorf("left in the state directory: %s", path)
		}
		return err
	})
	if err != nil {
		n.t.Error(err)
	}
}

func (n *node) mounts() (found []string) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Error(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.dir+"/") {
			found = append(found, f[4])
		}
	}
	slices.Reverse(found)
	return found
}

func (n *node) loops() (found []string) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		n.t.Error(err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), n.dir+"/") {
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found
}
