package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest"
)

// program and strict are the paths of csi-volmgr and of the strict driver as
// they were built for these tests.
var program, strict string

func TestMain(m *testing.M) {
	drivertest.Enter()
	dir, err := os.MkdirTemp("", "faults-bin-")
	if err == nil {
		program, err = build(dir, "cmd/csi-volmgr")
	}
	if err == nil {
		strict, err = build(dir, "test/csi-strict/cmd")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func build(dir, pkg string) (string, error) {
	path := filepath.Join(dir, filepath.Base(pkg))
	args := []string{"build", "-o", path}
	if os.Getenv("E2E_RACE") != "" && pkg == "cmd/csi-volmgr" {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/csi-volmgr/csi-volmgr/"+pkg)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// process is a program that runs beside the test, again whenever it ends if it
// is supervised.
type process struct {
	t    *testing.T
	log  string
	args []string
	keep bool

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	done    chan struct{} // closed when it has ended and does not begin again
}

// start runs a program until the test ends. What it writes goes to the file log.
func start(t *testing.T, log string, keep bool, args ...string) *process {
	t.Helper()
	p := &process{t: t, log: log, args: args, keep: keep, done: make(chan struct{})}
	if err := p.begin(); err != nil {
		t.Fatalf("start %q: %v", args, err)
	}
	go p.watch()
	t.Cleanup(p.kill)
	return p
}

func (p *process) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return os.ErrProcessDone
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.cmd.Start()
}

func (p *process) watch() {
	defer close(p.done)
	for {
		p.cmd.Wait() // how it ended is in its log
		if !p.keep || p.begin() != nil {
			return
		}
	}
}

// kill ends the process as a crash would, for good.
func (p *process) kill() {
	p.mu.Lock()
	p.stopped = true
	p.cmd.Process.Kill() // fails only where it has ended
	p.mu.Unlock()
	<-p.done
}

// crash ends the process, which begins again if it is supervised.
func (p *process) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd.Process.Kill()
}

// tail is the end of what the process wrote.
func (p *process) tail() string {
	const lines = 80
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// result is what a command said and how it ended.
type result struct {
	stdout, stderr string
	code           int
}

// run runs a command to its end.
func run(t *testing.T, stdin, binary string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("run %s: %v", cmd, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
