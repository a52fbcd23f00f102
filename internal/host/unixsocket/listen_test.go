package unixsocket_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// The daemon serves the socket of a service manager, leaves it when it ends, and allows no
// second daemon.
func TestPassedSocketStaysWhenTheDaemonGoes(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	owner, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	pass := func() *os.File {
		f, err := owner.File()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for range 2 { // the second time as after a restart
		l, err := unixsocket.Listen(t.Context(), path, pass())
		if err != nil {
			t.Fatal(err)
		}
		if second, err := unixsocket.Listen(t.Context(), path, pass()); err == nil {
			t.Error("two daemons on one socket")
			second.Close()
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		served, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served.Close()
		c.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("the socket went with the daemon: %v", err)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unixsocket.Listen(t.Context(), path, null); err == nil {
		t.Error("what is no socket is served")
	}
}

// A process may listen on a path that does not exist, or on which no process listens any
// more; the path may have any length.
func TestPathIsFreeWhereNoProcessListens(t *testing.T) {
	top, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, strings.Repeat("d", unixsocket.MaxPath))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	if err := unixsocket.Free(t.Context(), path); err != nil {
		t.Errorf("nothing is there: %v", err)
	}
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/s", at.Fd()), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := unixsocket.Free(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("a process listens: %v", err)
	}
	l.Close()
	if err := unixsocket.Free(t.Context(), path); err != nil {
		t.Errorf("its process has ended: %v", err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := unixsocket.Free(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file is there: %v", err)
	}
}
