package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// Whoever was accepted is answered, although the request comes when the server
// accepts nobody any more: a verb that is called while the daemon is restarted
// does not fail.
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
