package harness

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that runs during the test; a supervised one is restarted
// whenever it ends.
type Process struct {
	t   *testing.T
	log string
	// make returns the command of each run.
	make func() *exec.Cmd
	keep bool
	done chan struct{} // closed when the process has ended and is not restarted

	mu      sync.Mutex
	cmd     *exec.Cmd // guarded by mu
	stopped bool      // guarded by mu
	err     error     // how the process ended; valid once done is closed
}

// Start runs cmd until the test ends, and appends its output to the file log. A failed test
// shows the end of the log. A panic or a data race in the program fails the test.
func Start(t *testing.T, log string, cmd *exec.Cmd) *Process {
	t.Helper()
	return start(&Process{t: t, log: log, make: func() *exec.Cmd { return cmd }})
}

// Supervise is Start for a program that is restarted whenever it ends.
func Supervise(t *testing.T, log, binary string, args ...string) *Process {
	t.Helper()
	return start(&Process{t: t, log: log, keep: true, make: func() *exec.Cmd { return exec.Command(binary, args...) }})
}

func start(p *Process) *Process {
	p.t.Helper()
	p.done = make(chan struct{})
	if err := p.begin(); err != nil {
		p.t.Fatalf("start: %v", err)
	}
	go p.watch()
	p.t.Cleanup(func() {
		p.Kill()
		p.sound()
	})
	return p
}

func (p *Process) begin() error {
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
	p.cmd = p.make()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return p.cmd.Start()
}

func (p *Process) watch() {
	defer close(p.done)
	for {
		if p.err = p.cmd.Wait(); !p.keep || p.begin() != nil {
			return
		}
	}
}

// sound fails the test if the process's log has a panic or a data race.
func (p *Process) sound() {
	p.t.Helper()
	b, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if i := bytes.Index(b, []byte(bad)); i >= 0 {
			p.t.Errorf("%s: %s", p.log, b[i:min(i+8192, len(b))])
		}
	}
}

// Kill kills the process, which is not restarted.
func (p *Process) Kill() {
	p.mu.Lock()
	p.stopped = true
	KillGroup(p.cmd)
	p.mu.Unlock()
	<-p.done
}

// Crash kills the process, which is restarted if it is supervised.
func (p *Process) Crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	KillGroup(p.cmd)
}

// KillGroup kills a process, and its process group if it leads one.
func KillGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.Process.Kill() // fails only if the process has ended
}

// Paused stops every thread of the process, runs f, and continues the process, so the
// process sees all steps of f at once. The process must not wait in the kernel for
// something that only f ends.
func (p *Process) Paused(f func()) {
	p.t.Helper()
	pid := p.Pid()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		p.t.Fatalf("pause %s: %v", p, err)
	}
	defer unix.Kill(pid, unix.SIGCONT)
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); err != nil { // Kill does not wait for the threads to stop
		p.t.Fatalf("pause %s: %v", p, err)
	}
	f()
}

// Ask sends the process SIGTERM, as service managers do, and returns how it ended.
func (p *Process) Ask() error {
	p.t.Helper()
	p.mu.Lock()
	p.stopped = true
	p.cmd.Process.Signal(syscall.SIGTERM) // fails only if the process has ended
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.t.Fatalf("%s did not end within %s of SIGTERM", p, Patience)
	}
	return p.err
}

// Stop is Ask for a process that must end without an error; it ignores one that has ended.
func (p *Process) Stop() {
	if !p.Runs() {
		return
	}
	p.t.Helper()
	if err := p.Ask(); err != nil {
		p.t.Errorf("%s ended with %v", p, err)
	}
}

// Runs reports whether the process runs; it is false for one that was never started.
func (p *Process) Runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process has ended for good.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended, once Done is closed.
func (p *Process) Err() error { return p.err }

// Pid is the process id.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// String is the command line.
func (p *Process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.String()
}

// Log returns the file with the process's output.
func (p *Process) Log() string { return p.log }

// Tail returns the end of the process's output.
func (p *Process) Tail() string {
	const lines = 80
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// Result is the output of a command and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a command to its end.
func Run(t *testing.T, stdin, binary string, args ...string) Result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("run %s: %v", cmd, err)
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Stacks ends the process with the stacks of its goroutines at the end of its log.
func (p *Process) Stacks() {
	p.mu.Lock()
	p.stopped = true
	p.cmd.Process.Signal(syscall.SIGQUIT) // fails only if the process has ended
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(Patience):
	}
}
