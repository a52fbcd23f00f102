package client

import (
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
)

// Many simultaneous callers open one connection each, and not one for each request: a connection costs the daemon
// more than its requests.
func TestConnectionsOfABurstAreKept(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	made := 0
	var here sync.WaitGroup // the requests of one round
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			here.Done()
			here.Wait() // now each has a connection of its own
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
