package systemd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// supervisor returns systemd's end of the socket.
func supervisor(t *testing.T) (path string, next func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return path, func() string {
		t.Helper()
		b := make([]byte, 4096)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if value, ok := strings.CutPrefix(p, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func TestStatesArriveAsOneDatagram(t *testing.T) {
	path, next := supervisor(t)
	n, err := New(env("NOTIFY_SOCKET="+path), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Notify("READY=1", "STATUS=two\nlines"); err != nil {
		t.Fatal(err)
	}
	if got, want := next(), "READY=1\nSTATUS=two lines"; got != want {
		t.Errorf("systemd was sent %q, want %q", got, want)
	}
}

func TestWithoutSystemdNothingIsSent(t *testing.T) {
	n, err := New(env("WATCHDOG_USEC=1"), 7)
	if err != nil || n.Notify("READY=1") != nil {
		t.Errorf("%+v, %v", n, err)
	}
	n.Watch(t.Context(), func(context.Context) error { t.Error("asked"); return nil }, slog.New(slog.DiscardHandler))
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		env   []string
		every time.Duration
		fails bool
	}{
		{[]string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=3000000"}, 3 * time.Second, false},
		{[]string{"NOTIFY_SOCKET=@s", "WATCHDOG_USEC=3000000", "WATCHDOG_PID=7"}, 3 * time.Second, false},
		{[]string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=3000000", "WATCHDOG_PID=8"}, 0, false},
		{[]string{"NOTIFY_SOCKET=/s"}, 0, false},
		{[]string{"NOTIFY_SOCKET=relative"}, 0, true},
		{[]string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=0"}, 0, true},
		{[]string{"NOTIFY_SOCKET=/s", "WATCHDOG_USEC=soon"}, 0, true},
	} {
		n, err := New(env(c.env...), 7)
		if (err != nil) != c.fails || n.every != c.every {
			t.Errorf("%v: every %v, %v", c.env, n.every, err)
		}
	}
}

// The watchdog gets a sign of life only while the check succeeds.
func TestWatchdogFollowsWhatIsAlive(t *testing.T) {
	path, next := supervisor(t)
	n, err := New(env("NOTIFY_SOCKET="+path, "WATCHDOG_USEC=3000"), 7)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		n.Watch(ctx, func(ctx context.Context) error {
			switch asked++; asked {
			case 2:
				return errors.New("dead")
			case 3:
				<-ctx.Done() // hangs
				return ctx.Err()
			case 5:
				cancel()
				return n.Notify("END=1")
			}
			return n.Notify("ALIVE=1")
		}, slog.New(slog.DiscardHandler))
	}()
	var got []string
	for len(got) == 0 || got[len(got)-1] != "END=1" {
		got = append(got, next())
	}
	<-ended
	if want := "ALIVE=1 WATCHDOG=1 ALIVE=1 WATCHDOG=1 END=1"; strings.Join(got, " ") != want {
		t.Errorf("systemd was sent %v, want %s", got, want)
	}
}
