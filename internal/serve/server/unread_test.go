package server

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pipes is a listener whose connections are pipes, which hold nothing.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A client that asks for the metrics and reads nothing of them is cut off: else each such request would keep its answer
// in memory, and any member of --api-readers can make as many as they like.
func TestAnAnswerThatIsNotReadEnds(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "long", Help: strings.Repeat("x", 1<<20)}))
	cfg.Metrics = metrics
	synctest.Test(t, func(t *testing.T) {
		s := &Server{cfg: cfg, stopping: make(chan struct{})}
		srv := s.httpServer(context.Background(), s.healthHandler(), newConnections(time.Now))
		accept := make(pipes)
		ended := make(chan error, 1)
		go func() { ended <- srv.Serve(accept) }()
		ours, theirs := net.Pipe()
		accept <- theirs
		if _, err := io.WriteString(ours, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * writeTimeout)
		if got, err := io.ReadAll(ours); err != nil || len(got) > 4<<10 {
			t.Errorf("after %v the client still gets %d bytes, %v", 2*writeTimeout, len(got), err)
		}
		close(accept)
		<-ended
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
}
