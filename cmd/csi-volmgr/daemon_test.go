package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"k8s.io/klog/v2"
)

func fetch(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %v", url, resp.Status, err)
	}
	return string(b)
}

// `run` serves the API, metrics and health of a real node until it is told to
// stop; a second one beside it is refused.
func TestRunServesANode(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	dir := t.TempDir()
	args := []string{
		"run", "--root-dir", filepath.Join(dir, "root"), "--state-dir", filepath.Join(dir, "state"), "--node-name", "n1",
		"--socket", filepath.Join(dir, "s"), "--http-address", "127.0.0.1:0", "--log-format", "json",
	}
	logs, stderr := io.Pipe()
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: stderr, now: time.Now, euid: func() int { return 0 }, node: runNode}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- p.run(ctx, args)
		_ = stderr.Close()
	}()
	var line struct{ Msg, HTTP string }
	in := bufio.NewScanner(logs)
	for line.Msg != "daemon starts" && in.Scan() {
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", in.Text(), err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()

	c := client.New(filepath.Join(dir, "s"))
	defer c.Close()
	v, err := c.Version(t.Context())
	if err != nil || v.Node != "n1" {
		t.Errorf("version: %+v, %v", v, err)
	}
	if body := fetch(t, "http://"+line.HTTP+"/healthz"); body != "ok\n" {
		t.Errorf("healthz: %q", body)
	}
	if body := fetch(t, "http://"+line.HTTP+"/metrics"); !strings.Contains(body, "go_goroutines ") {
		t.Errorf("metrics: %.200q", body)
	}
	var refused strings.Builder
	second := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &refused, now: time.Now, euid: func() int { return 0 }, node: runNode}
	if got := second.run(t.Context(), args); got != exitFailed || !strings.Contains(refused.String(), "another") {
		t.Errorf("second daemon: exit code %d: %s", got, refused.String())
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}
