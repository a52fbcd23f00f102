package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// The daemon tells systemd when it is ready, that it is alive, and when it stops.
func TestRunTellsSystemd(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir, err := os.MkdirTemp("", "sd") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	notify := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", notify)
	t.Setenv("WATCHDOG_USEC", "30000")
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, now: time.Now, euid: func() int { return 0 }, node: runNode}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- p.run(ctx, []string{
			"run", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state"), "--node-name", "n1",
			"--socket", filepath.Join(dir, "s"), "--http-address", "off",
		})
	}()
	until := func(want string) {
		t.Helper()
		b := make([]byte, 4096)
		if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := socket.Read(b)
			if err != nil {
				t.Fatalf("waiting for %q: %v", want, err)
			}
			if strings.HasPrefix(string(b[:n]), want) {
				return
			}
		}
	}
	until("READY=1\nSTATUS=ready")
	until("WATCHDOG=1")
	cancel()
	until("STOPPING=1")
	if got := <-code; got != exitDone {
		t.Errorf("exit code %d", got)
	}
}
