package systemd

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPassed is the process that gets the sockets.
func TestPassed(t *testing.T) {
	path := os.Getenv("SYSTEMD_TEST_SOCKET")
	if path == "" {
		t.Skip("for TestSocketThatSystemdListensOnIsTaken")
	}
	getenv := func(name string) string {
		if name == "LISTEN_PID" { // systemd sets it to the new process's id, which a test cannot know before
			return strconv.Itoa(os.Getpid())
		}
		return os.Getenv(name)
	}
	if f, err := Listener(getenv, os.Getpid(), path+".other"); f != nil || err != nil {
		t.Errorf("at another path: %v, %v", f, err)
	}
	f, err := Listener(getenv, os.Getpid(), path)
	if err != nil || f == nil {
		t.Fatalf("got %v, %v", f, err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("taken")); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestSocketThatSystemdListensOnIsTaken(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	none, err := os.Open(os.DevNull) // passed too, but not a socket
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPassed$", "-test.v")
	cmd.Env = append(os.Environ(), "SYSTEMD_TEST_SOCKET="+path, "LISTEN_FDS=2")
	cmd.ExtraFiles = []*os.File{none, f}
	done := make(chan string, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			done <- err.Error() + "\n" + string(out)
			return
		}
		done <- ""
	}()
	c, err := net.DialTimeout("unix", path, time.Minute) // answered once the process runs
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if why := <-done; why != "" {
		t.Fatal(why)
	}
	b := make([]byte, 16)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "taken" {
		t.Errorf("got %q, %v", b[:n], err)
	}
}

func TestWhatSystemdDidNotPassIsNotTaken(t *testing.T) {
	for _, tc := range []struct {
		pid, fds, want string
	}{
		{"", "1", ""}, {"1", "1", ""}, {"7", "x", "LISTEN_FDS=x"}, {"7", "-1", "LISTEN_FDS"}, {"7", "65", "LISTEN_FDS"}, {"7", "0", ""},
	} {
		getenv := func(name string) string { return map[string]string{"LISTEN_PID": tc.pid, "LISTEN_FDS": tc.fds}[name] }
		f, err := Listener(getenv, 7, "/run/s")
		if f != nil || (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, %v", tc, f, err)
		}
	}
}
