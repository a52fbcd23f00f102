package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// daemonIn starts a daemon whose directories are below dir, and returns when it serves. Its
// registration directory is not a default one.
func daemonIn(t *testing.T, dir string) (stop func()) {
	t.Helper()
	logs, stderr := io.Pipe()
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: stderr, now: time.Now, euid: func() int { return 0 }, node: runNode}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- p.run(ctx, []string{
			"run", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state"), "--node-name", "n1",
			"--registration-dir", filepath.Join(dir, "reg"), "--socket", filepath.Join(dir, "s"), "--http-address", "off", "--log-format", "json",
		})
		_ = stderr.Close()
	}()
	var line struct{ Msg string }
	in := bufio.NewScanner(logs)
	for line.Msg != "daemon starts" && in.Scan() {
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if got := <-code; got != exitDone {
			t.Errorf("daemon: exit code %d", got)
		}
	}
	t.Cleanup(stop)
	return stop
}

// startProgram starts a verb; stop ends it and returns its exit code.
func startProgram(t *testing.T, stderr io.Writer, args ...string) (stop func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: stderr, now: time.Now, euid: func() int { return 0 }}
	code := make(chan int, 1)
	go func() { code <- p.run(ctx, args) }()
	return func() int { cancel(); return <-code }
}

var errSeen = errors.New("seen")

// awaitDriver waits until the daemon shows the driver as up, or as not up.
func awaitDriver(t *testing.T, dir string, up bool) {
	t.Helper()
	c := client.New(filepath.Join(dir, "s"))
	defer c.Close()
	err := c.WatchDrivers(t.Context(), func(e server.Event[server.DriverStatus]) error {
		if e.Item.Name == "x.example.com" && (e.Type == "gone" || e.Item.Up == up) {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Fatal(err)
	}
}

// shortDir is a directory whose sockets have short paths.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A driver handed over to the daemon is registered when the verb returns, registered again
// when the daemon is back, and gone after the operator takes it back.
func TestDriverIsHandedOverToTheDaemon(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir := shortDir(t)
	socket, endpoint := filepath.Join(dir, "s"), filepath.Join(dir, "csi.sock")
	verb := func(args ...string) (int, string) {
		var out strings.Builder
		code := run(t.Context(), append([]string{"--socket", socket}, args...), nil, &out, &out)
		return code, out.String()
	}
	stop := daemonIn(t, dir)
	if code, out := verb("driver", "unregister", "x.example.com"); code != exitFailed || !strings.Contains(out, "driver x.example.com was not handed over") {
		t.Errorf("before: exit code %d: %s", code, out)
	}
	driver := startProgram(t, io.Discard, "local-driver", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "data"),
		"--node-id", "n1", "--name", "x.example.com", "--endpoint", endpoint, "--registration-dir", filepath.Join(dir, "none"))
	for range 2 {
		if code, out := verb("driver", "register", "--detach", "unix://"+endpoint); code != exitDone || out != "driver x.example.com is registered\n" {
			t.Fatalf("exit code %d: %s", code, out)
		}
	}
	awaitDriver(t, dir, true)
	if err := os.Link(endpoint, endpoint+"2"); err != nil {
		t.Fatal(err)
	}
	if code, out := verb("driver", "register", "-d", endpoint+"2"); code != exitFailed || !strings.Contains(out, "is already registered at "+endpoint) {
		t.Errorf("from another place: exit code %d: %s", code, out)
	}
	if code, out := verb("driver", "register", "-d", "--registration-dir", dir, endpoint); code != exitUsage {
		t.Errorf("with a directory: exit code %d: %s", code, out)
	}
	stop()
	if left, err := filepath.Glob(filepath.Join(dir, "reg", "*")); err != nil || len(left) > 0 {
		t.Errorf("left when the daemon has ended: %q, %v", left, err)
	}
	daemonIn(t, dir)
	awaitDriver(t, dir, true)
	if code, out := verb("driver", "unregister", "x.example.com"); code != exitDone {
		t.Errorf("unregister: exit code %d: %s", code, out)
	}
	awaitDriver(t, dir, false)
	if code := driver(); code != exitDone {
		t.Errorf("driver: exit code %d", code)
	}
}

// `driver register` registers the driver in the directory that the daemon at the socket
// watches, and leaves nothing behind.
func TestDriverRegisterAsksTheDaemonForItsDirectory(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir := shortDir(t)
	endpoint := filepath.Join(dir, "csi.sock")
	daemonIn(t, dir)
	driver := startProgram(t, io.Discard, "local-driver", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "data"),
		"--node-id", "n1", "--name", "x.example.com", "--endpoint", endpoint, "--registration-dir", filepath.Join(dir, "none"))
	end := startProgram(t, io.Discard, "--socket", filepath.Join(dir, "s"), "driver", "register", endpoint)
	awaitDriver(t, dir, true)
	if code := end(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	awaitDriver(t, dir, false)

	made := filepath.Join(dir, "made", "by", "it")
	told := make(chan struct{})
	end = startProgram(t, &onFirst{told: told}, "--socket", filepath.Join(dir, "none"), "driver", "register", "--registration-dir", made, endpoint)
	<-told
	if code := end(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory that it made is left: %v", err)
	}
	if code := driver(); code != exitDone {
		t.Errorf("driver: exit code %d", code)
	}
}

// onFirst closes told at the first write. As with a file, goroutines may write at once.
type onFirst struct {
	first sync.Once
	told  chan struct{}
}

func (o *onFirst) Write(b []byte) (int, error) {
	o.first.Do(func() { close(o.told) })
	return len(b), nil
}

// Doctor looks at the directories of the daemon that answers at the socket, or at those
// that the command line names.
func TestDoctorLooksAtTheDaemonsDirectories(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir := shortDir(t)
	daemonIn(t, dir)
	call := func(args ...string) string {
		var out strings.Builder
		run(t.Context(), append([]string{"--socket", filepath.Join(dir, "s"), "doctor"}, args...), nil, &out, io.Discard)
		return out.String()
	}
	dead := filepath.Join(dir, "reg", "dead-reg.sock")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	out := call()
	for _, want := range []string{filepath.Join(dir, "root"), filepath.Join(dir, "state"), dead} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not looked at:\n%s", want, out)
		}
	}
	if out := call("--root-dir", filepath.Join(dir, "other")); !strings.Contains(out, filepath.Join(dir, "other")) || strings.Contains(out, dead) {
		t.Errorf("with another root directory:\n%s", out)
	}
}

// run runs the program with args and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now, euid: os.Geteuid, node: runNode}
	return p.run(ctx, args)
}

// A path at which no driver answers, such as a mistyped one, is named while the verb waits.
func TestDriverRegisterSaysThatItWaitsForTheDriver(t *testing.T) {
	told := make(chan struct{})
	stderr := &onFirst{told: told}
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: stderr, now: time.Now, euid: func() int { return 0 }, patience: time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() {
		code <- p.run(ctx, []string{"driver", "register", "--registration-dir", t.TempDir(), "/none/csi.sock"})
	}()
	<-told
	cancel()
	if got := <-code; got != exitFailed {
		t.Errorf("exit code %d, want 1", got)
	}
}
