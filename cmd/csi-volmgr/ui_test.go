package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// While the verb runs, a browser can reach the page, and nothing but the page.
func TestUIServesThePageAndNothingElse(t *testing.T) {
	r := newRig(t, stuck(fixed))
	out, in := io.Pipe()
	r.program.stdout = in
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- r.run(ctx, []string{"--socket", r.socket, "ui"}) }()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url = strings.TrimSpace(url)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]int{"": http.StatusOK, "page.js": http.StatusOK, "../v1/pods": http.StatusNotFound, "../": http.StatusOK} {
		answer, err := c.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", url+path, answer.StatusCode, want)
		}
	}
	cancel()
	if got := <-code; got != exitDone {
		t.Errorf("interrupted: exit code %d", got)
	}
}

func TestUIIsForThisMachineOnly(t *testing.T) {
	r := newRig(t, stuck(fixed))
	for _, address := range []string{"0.0.0.0:0", "10.1.2.3:80", "localhost:80", "[::]:0", "x"} {
		if got := r.run(t.Context(), []string{"--socket", r.socket, "ui", "--address=" + address}); got != exitUsage {
			t.Errorf("--address=%s: exit code %d, want %d", address, got, exitUsage)
		}
	}
}
