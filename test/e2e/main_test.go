package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest"
)

// program is the path of csi-volmgr as it was built for these tests, and daemon
// that of the one to run as a daemon or driver: the same, or with the race detector.
var program, daemon string

// strict is the path of the strict driver, where the suite is run with it.
var strict string

func TestMain(m *testing.M) {
	drivertest.Enter()
	dir, err := os.MkdirTemp("", "e2e-bin-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	if strict != "" {
		fmt.Println(&verdicts)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// prepare builds what the tests run, and tries the drivers that they run with.
func prepare(dir string) (err error) {
	if program, err = build(dir, "csi-volmgr"); err != nil {
		return err
	}
	daemon = program
	if os.Getenv("E2E_RACE") != "" {
		if daemon, err = build(dir, "csi-volmgr-race", "-race"); err != nil {
			return err
		}
	}
	switch driver := os.Getenv("E2E_DRIVER"); driver {
	case "":
	case "strict":
		if strict, err = buildMain(filepath.Join(dir, "csi-strict"), "test/csi-strict/cmd"); err != nil {
			return err
		}
	default:
		return fmt.Errorf("E2E_DRIVER=%s: want strict, or nothing for the local driver", driver)
	}
	for _, k := range kinds() {
		if !k.local {
			err = errors.Join(err, try(k, filepath.Join(dir, k.label)))
		}
	}
	return err
}

func build(dir, name string, flags ...string) (string, error) {
	return buildMain(filepath.Join(dir, name), "cmd/csi-volmgr", flags...)
}

// buildMain builds the program in the directory main of this module.
func buildMain(path, main string, flags ...string) (string, error) {
	args := append([]string{"build", "-o", path}, flags...)
	cmd := exec.Command("go", append(args, "github.com/csi-volmgr/csi-volmgr/"+main)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", main, err, out)
	}
	return path, nil
}

// process is a program that runs beside the test.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
}

// start runs binary until the test ends. What it writes goes to a file in dir,
// of which a test that fails shows the end.
func start(t *testing.T, dir, binary string, args ...string) *process {
	t.Helper()
	name := filepath.Base(binary)
	if verb := args[0]; !strings.HasPrefix(verb, "-") {
		name += "-" + verb
	}
	return launch(t, filepath.Join(dir, name+".log"), exec.Command(binary, args...))
}

// launch runs cmd until the test ends, and adds what it writes to the file log.
func launch(t *testing.T, log string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, log: log, done: make(chan struct{})}
	file, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		file.Close()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		p.sound()
	})
	return p
}

// sound fails the test if the process said that something is wrong with it.
func (p *process) sound() {
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

// kill ends the process as a crash would.
func (p *process) kill() {
	killed(p.cmd)
	<-p.done
}

// killed kills a process, and those of its group if it has one of its own.
func killed(cmd *exec.Cmd) {
	if cmd.SysProcAttr.Setpgid {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.Process.Kill() // fails only where it has ended
}

// stop asks the process to end, which it must do well.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("stop %s: %v", p.cmd.Path, err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end within %s of SIGTERM", p.cmd, patience)
	}
	if p.err != nil {
		p.t.Errorf("%s ended with %v", p.cmd, p.err)
	}
}

// tail is the end of what the process wrote.
func (p *process) tail() string {
	const lines = 60
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
