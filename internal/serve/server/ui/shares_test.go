package ui

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// as returns a client whose sockets belong to a user.
func as(t *testing.T, uid int) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(uid); err != nil {
			return nil, err
		}
		defer func() {
			if err := unix.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// One user of the host takes a share of the pages, all others together leave some to root, and what a user closes is
// free again. The server listens on both families, as `--http-address=:9811` does, and on one.
func TestAttackOneUserTakesNotAllPages(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::]:0", "[::1]:0"} {
		srv := httptest.NewUnstartedServer(New((&world{changed: make(chan struct{})}).config(nil)))
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		srv.Listener.Close()
		srv.Listener = listener
		srv.Start()
		hosts := map[string][]string{"127.0.0.1:0": {"127.0.0.1"}, "[::]:0": {"127.0.0.1", "::1"}, "[::1]:0": {"::1"}}[address]
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		open := func(uid, host int) int {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet,
				"http://"+net.JoinHostPort(hosts[host%len(hosts)], port)+"/ui/rows", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := as(t, uid).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { answer.Body.Close() })
			return answer.StatusCode
		}
		for _, c := range []struct{ uid, pages, refused int }{
			{4001, maxOfOne, 1}, {4002, maxOfOne, 1}, {4003, 0, 1}, {0, maxStreams - maxOthers, 1},
		} {
			for i := range c.pages + c.refused {
				want := http.StatusOK
				if i >= c.pages {
					want = http.StatusServiceUnavailable
				}
				if got := open(c.uid, i); got != want {
					t.Errorf("%s: page %d of user %d: %d, want %d", address, i, c.uid, got, want)
				}
			}
		}
		leave()
		srv.Close()
	}
}

// A visitor of another host counts by its address, and gives back what it took.
func TestPagesAreCountedByVisitor(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/ui/rows", nil) // of 192.0.2.1
	v := visitorOf(r)
	if v.name != "address 192.0.2.1" || v.owner {
		t.Errorf("%+v", v)
	}
	s := shares{of: map[string]int{}}
	for range 2 {
		var all []func()
		for range maxOfOne {
			free, err := s.take(v)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, free)
		}
		if _, err := s.take(v); err == nil {
			t.Error("one more")
		}
		if free, err := s.take(visitor{name: "address 192.0.2.2"}); err != nil {
			t.Error(err)
		} else {
			free()
		}
		for _, free := range all {
			free()
		}
	}
	if s.all != 0 || s.others != 0 || len(s.of) != 0 {
		t.Errorf("%+v", &s)
	}
}
