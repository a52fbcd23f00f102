package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// A local user who keeps many connections to the HTTP address open (silent, in the middle of a request, or idle)
// cannot block a probe, and the server keeps only a few of them.
//
// Attacks: C39.
func TestAttackConnectionsThatAreKeptOpenHinderNoProbe(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	cfg.HTTPAddress = "127.0.0.1:0"
	s, _ := start(t, cfg)
	var kept []net.Conn
	t.Cleanup(func() {
		for _, c := range kept {
			c.Close()
		}
	})
	begun := map[int]string{0: "", 1: "GET /healthz HTTP/1.1\r\nHost: x\r\n", 2: "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"}
	for i := range 2 * maxConnections {
		c, err := net.Dial("tcp", s.HTTPAddress())
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
		_, _ = io.WriteString(c, begun[i%len(begun)]) // the server may have closed it already
	}
	for range 10 {
		r, err := http.Get("http://" + s.HTTPAddress() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("a probe is answered %s", r.Status)
		}
	}
}

// Users who may only read can keep only some connections to the socket open, so that descriptors are left for mounts.
// They close none of root's.
//
// Attacks: C38.
func TestAttackConnectionsOfReadersAreLimited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test connects as another user: run it as root")
	}
	dir, err := os.MkdirTemp("", "server")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const readers = 4711
	cfg := config(t, newBackend(Facts{}))
	cfg.Socket, cfg.Readers = filepath.Join(dir, "run", "api.sock"), readers
	start(t, cfg)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	roots := dialAsking(t, cfg.Socket)
	var theirs []*asking
	var others sync.WaitGroup
	others.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for _, set := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
			if _, _, errno := syscall.RawSyscall(set, readers, readers, readers); errno != 0 {
				t.Error(errno)
				return
			}
		}
		for range 2 * maxConnections {
			theirs = append(theirs, dialAsking(t, cfg.Socket))
		}
	})
	others.Wait()
	answered := 0
	for _, c := range theirs {
		if c.ask() == nil {
			answered++
		}
	}
	if answered != maxConnections {
		t.Errorf("readers keep %d connections, want %d", answered, maxConnections)
	}
	if err := roots.ask(); err != nil {
		t.Errorf("root's connection: %v", err)
	}
}

// asking is a connection that is kept between requests.
type asking struct {
	net.Conn
	answers *bufio.Reader
}

// dialAsking connects to the socket and sends a first request, so that the server has accepted the connection.
func dialAsking(t *testing.T, socket string) *asking {
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { c.Close() })
	a := &asking{c, bufio.NewReader(c)}
	if err := a.ask(); err != nil {
		t.Error(err)
	}
	return a
}

// ask sends a request and reads the answer.
func (a *asking) ask() error {
	if _, err := io.WriteString(a, "GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(a.answers, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return errors.Join(err, r.Body.Close())
}

// conn is a connection with a name.
type conn struct {
	net.Conn
	name string
}

// If there are too many connections, the server closes the one that has been without a request for longest, else the
// one with the oldest request, and never the new one.
//
// Attacks: C39.
func TestTheLongestSilentConnectionGoes(t *testing.T) {
	c := connLimiter{most: 3}
	a, b, d, e, f, g := conn{name: "a"}, conn{name: "b"}, conn{name: "d"}, conn{name: "e"}, conn{name: "f"}, conn{name: "g"}
	for _, step := range []struct {
		conn  net.Conn
		state http.ConnState
		out   net.Conn
	}{
		{a, http.StateNew, nil},
		{b, http.StateNew, nil},
		{a, http.StateActive, nil},
		{d, http.StateNew, nil},
		{e, http.StateNew, b},    // b has been silent for longest
		{a, http.StateIdle, nil}, // a is silent from now on
		{f, http.StateNew, d},
		{e, http.StateActive, nil},
		{a, http.StateActive, nil},
		{f, http.StateActive, nil},
		{g, http.StateNew, e}, // all have a request, and e's is the oldest
		{g, http.StateClosed, nil},
		{b, http.StateNew, nil},      // there is room again
		{b, http.StateHijacked, nil}, // the server no longer owns it
		{d, http.StateNew, nil},
	} {
		if out := c.move(step.conn, step.state); out != step.out {
			t.Fatalf("%v %v: %v goes, want %v", step.conn, step.state, out, step.out)
		}
	}
}

// Users who may only read cannot use up root's streams, nor one of them all streams of readers.
//
// Attacks: C38.
func TestAttackReadersWatchesLeaveRoomForRoot(t *testing.T) {
	var s streams
	root := peer{}
	var free []func()
	for uid := range uint32(10) {
		for range maxStreams {
			if f, err := s.take(peer{uid: 1000 + uid}); err == nil {
				free = append(free, f)
			} else if !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
		}
		if got := s.of[1000+uid]; got > maxOfReader || uid == 0 && got != maxOfReader {
			t.Errorf("user %d has %d", 1000+uid, got)
		}
	}
	if len(free) != maxReaders {
		t.Errorf("readers have %d, want %d", len(free), maxReaders)
	}
	for range maxStreams - maxReaders {
		f, err := s.take(root)
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, f)
	}
	if _, err := s.take(root); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	for _, f := range free {
		f()
	}
	if s.all != 0 || s.read != 0 || len(s.of) != 0 {
		t.Errorf("in the end: %+v", &s)
	}
}
