package client

import (
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
)

// Many callers at one time connect once each, and not once for each request: a
// connection costs the daemon more than what is asked on it.
func TestConnectionsOfABurstAreKept(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	made := 0
	var here sync.WaitGroup // who is asked, of one round
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			here.Done()
			here.Wait() // all have a connection of their own then
			_, _ = w.Write([]byte("{}\n"))
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			mu.Lock()
			defer mu.Unlock()
			if s == http.StateNew {
				made++
			}
		},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	defer func() {
		_ = server.Close()
		<-ended
	}()
	c := New(socket)
	defer c.Close()
	for range 3 {
		here.Add(maxIdle)
		var callers sync.WaitGroup
		for range maxIdle {
			callers.Go(func() {
				if _, err := c.Version(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	if made != maxIdle {
		t.Errorf("%d connections for %d callers", made, maxIdle)
	}
}
