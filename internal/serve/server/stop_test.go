package server

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// The server answers a client that it has accepted, even if the request comes after it stopped accepting: a verb
// called during a restart of the daemon does not fail.
func TestWhoWasAcceptedIsAnswered(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	_, stop := start(t, cfg)
	c, err := net.Dial("unix", cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if code, body := unixGet(t, cfg.Socket, "GET", "/v1/version", nil); code != 200 { // accepted after c
		t.Fatalf("%d %s", code, body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	for {
		other, err := net.Dial("unix", cfg.Socket)
		if err != nil {
			break
		}
		other.Close()
	}
	if _, err := io.WriteString(c, "GET /v1/version HTTP/1.1\r\nHost: csi-volmgr\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("answered %s", answer.Status)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A stop cuts off a request that takes longer than its patience, and still succeeds: a daemon that fails at each stop
// during a slow verb would count as crashed.
func TestARequestThatTakesTooLongIsCutOffAtAStop(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	asked, release := make(chan struct{}), make(chan struct{})
	cfg.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		close(asked)
		<-release
		return nil, nil
	})
	var log bytes.Buffer // read after the server has ended
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, stop := start(t, cfg)
	s.patience = time.Millisecond
	answered := make(chan error, 1)
	go func() {
		answer, err := http.Get("http://" + s.HTTPAddress() + "/metrics")
		if err == nil {
			answer.Body.Close()
		}
		answered <- err
	}()
	<-asked
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if !strings.Contains(log.String(), "get no answer") {
		t.Errorf("logged: %s", log.String())
	}
	if err := <-answered; err == nil {
		t.Error("it was answered")
	}
	close(release)
}

// A stop does not wait for an older connection without a complete request, at either address, whatever other clients
// do.
func TestWhoAsksNothingHoldsUpNoStop(t *testing.T) {
	for what, sent := range map[string]string{"nothing": "", "half a request": "GET /v1/version HT"} {
		t.Run(what, func(t *testing.T) {
			cfg := config(t, newBackend(Facts{}))
			var later atomic.Int64 // the clock moves only when the test moves it, so the machine may be slow
			cfg.Now = func() time.Time { return now.Add(time.Duration(later.Load())) }
			s, stop := start(t, cfg)
			dial := func(network, address string) net.Conn {
				t.Helper()
				c, err := net.Dial(network, address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			silent := []net.Conn{dial("unix", cfg.Socket), dial("tcp", s.HTTPAddress())}
			for _, c := range silent {
				if _, err := io.WriteString(c, sent); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = unixGet(t, cfg.Socket, "GET", "/v1/version", nil) // accepted after them
			_, _ = httpGet(t, "http://"+s.HTTPAddress()+"/livez")
			later.Store(int64(askTimeout))
			fresh := dial("unix", cfg.Socket)
			_, _ = unixGet(t, cfg.Socket, "GET", "/v1/version", nil)

			stopped := make(chan error, 1)
			go func() { stopped <- stop() }()
			for _, c := range silent {
				if n, err := c.Read(make([]byte, 1)); err == nil {
					t.Errorf("%d bytes of an answer to no question", n)
				}
			}
			if _, err := io.WriteString(fresh, "GET /v1/version HTTP/1.1\r\nHost: csi-volmgr\r\n\r\n"); err != nil {
				t.Fatalf("the stop waited for the silent ones as long as for this one: %v", err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(fresh), nil)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if err := <-stopped; err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}
