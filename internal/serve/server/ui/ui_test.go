package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string, listed bool, volumes ...manager.PodVolumeStatus) manager.PodStatus {
	ready := listed
	for _, v := range volumes {
		ready = ready && v.Mounted
	}
	return manager.PodStatus{
		Pod:    state.Pod{UID: state.PodUID("uid-" + name), Namespace: "default", Name: name},
		Listed: listed, Ready: ready, Volumes: volumes,
	}
}

var since = time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)

// why stands in for the explanation.
func why(_ state.PodUID, v manager.PodVolumeStatus) string {
	return v.BlockedBy + v.Retry.Error + v.Drift
}

func TestRows(t *testing.T) {
	mounted := manager.PodVolumeStatus{Names: []string{"data"}, Driver: "d.example", Claim: "data", Mounted: true, Phase: state.Present, HostPath: "/v/mount"}
	staging := manager.PodVolumeStatus{Names: []string{"data"}, Phase: state.Absent, Step: plan.Stage, Since: since}
	held := staging
	held.BlockedBy = "driver d.example is not registered"
	failing := staging
	failing.Retry = state.Retry{Attempts: 3, Error: "no such disk"}
	readOnly := mounted
	readOnly.Drift = "it has become read-only"
	leaving := manager.PodVolumeStatus{Names: []string{"data"}, Phase: state.Leaving, Mounted: true}
	for _, c := range []struct {
		name          string
		pod           manager.PodStatus
		podWant, want Row
	}{
		{
			"mounted", pod("web", true, mounted),
			Row{State: good, What: "ready"},
			Row{State: good, What: "mounted", Detail: "d.example · data · /v/mount"},
		},
		{
			"a step is under way", pod("web", true, staging),
			Row{State: working, What: "0 of 1 mounted"},
			Row{State: working, What: "Stage", Since: since},
		},
		{
			"something has to happen first", pod("web", true, held),
			Row{State: blocked, What: "0 of 1 mounted"},
			Row{State: blocked, What: "Stage", Why: "driver d.example is not registered", Since: since},
		},
		{
			"its mount is not as it was made", pod("web", true, readOnly),
			Row{State: bad, What: "1 of 1 mounted"},
			Row{State: bad, What: "mounted", Why: "it has become read-only", Detail: "d.example · data · /v/mount"},
		},
		{
			"a step failed", pod("web", true, failing),
			Row{State: bad, What: "0 of 1 mounted"},
			Row{State: bad, What: "Stage, failed 3 times", Why: "no such disk", Since: since},
		},
		{
			"the pod leaves", pod("web", false, leaving),
			Row{State: working, What: "leaving"},
			Row{State: working, What: "leaving"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.podWant.Key, c.podWant.Kind, c.podWant.Name = "pod uid-web", "pod", "default/web"
			c.want.Key, c.want.Kind, c.want.Name, c.want.Of = "pod uid-web/data", "volume", "data", "pod uid-web"
			got := podRows(c.pod, why)
			if d := cmp.Diff([]Row{c.podWant, c.want}, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A pod whose status says that it has ended is not being mounted for ever.
func TestThePodThatHasEndedHasARow(t *testing.T) {
	p := manager.PodStatus{Pod: state.Pod{UID: "u", Namespace: "default", Name: "done"}, Listed: true}
	if got := podRows(p, nil); len(got) != 1 || got[0].State != good || got[0].What != "ended" {
		t.Errorf("got %+v", got)
	}
}

func TestDriverRows(t *testing.T) {
	d := manager.DriverStatus{DriverInfo: manager.DriverInfo{Name: "d.example"}, Up: true, Volumes: 2, Calls: 1}
	for want, change := range map[string]func(*manager.DriverStatus){
		good:    func(*manager.DriverStatus) {},
		bad:     func(d *manager.DriverStatus) { d.Up = false },
		blocked: func(d *manager.DriverStatus) { d.Up, d.Volumes = false, 0 },
	} {
		d := d
		change(&d)
		if got := driverRow(d); got.State != want {
			t.Errorf("%+v: state %q, want %q", d, got.State, want)
		}
	}
}

// Applying the result of diff to the older rows gives the newer ones, for any two states.
func TestDiff(t *testing.T) {
	r := func(key, what string) Row { return Row{Key: key, What: what} }
	looks := [][]Row{nil, {r("a", "1")}, {r("a", "2")}, {r("a", "1"), r("b", "1")}, {r("b", "1"), r("c", "3")}}
	for i, before := range looks {
		for j, now := range looks {
			c := diff(before, now)
			if c.empty() != (i == j) {
				t.Errorf("from %v to %v: %+v", before, now, c)
			}
			have := map[string]Row{}
			for _, r := range before {
				have[r.Key] = r
			}
			for _, r := range c.Set {
				have[r.Key] = r
			}
			for _, key := range c.Gone {
				delete(have, key)
			}
			want := map[string]Row{}
			for _, r := range now {
				want[r.Key] = r
			}
			if d := cmp.Diff(want, have); d != "" {
				t.Errorf("from %v to %v: %s", before, now, d)
			}
		}
	}
}

// world has the state that a handler shows.
type world struct {
	mu      sync.Mutex
	pods    []manager.PodStatus
	changed chan struct{}
}

func (w *world) set(pods ...manager.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = pods
	close(w.changed)
	w.changed = make(chan struct{})
}

func serve(t *testing.T, w *world, stopping chan struct{}) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(New(w.config(stopping)))
	t.Cleanup(srv.Close)
	return srv
}

func (w *world) config(stopping chan struct{}) Config {
	locked := func() func() { w.mu.Lock(); return w.mu.Unlock }
	return Config{
		Pods:     func() []manager.PodStatus { defer locked()(); return w.pods },
		Drivers:  func() []manager.DriverStatus { return nil },
		Problems: func() []Problem { return nil },
		Why:      func() func(state.PodUID, manager.PodVolumeStatus) string { return why },
		Changed:  func() <-chan struct{} { defer locked()(); return w.changed },
		Explain:  func(kind, name string) (string, error) { return kind + " " + name + ": <fine>", nil },
		Node:     "n1", Stopping: stopping,
	}
}

func request(t *testing.T, ctx context.Context, url, host string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// The stream sends all rows, then only the changed ones, and ends with the server.
func TestStream(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	w := &world{changed: make(chan struct{})}
	w.set(pod("a", true), pod("b", true))
	stopping := make(chan struct{})
	srv := serve(t, w, stopping)
	body := bufio.NewReader(request(t, t.Context(), srv.URL+"/ui/rows", "").Body)
	next := func() (m struct {
		Node string
		Set  []Row
		Gone []string
	},
	) {
		line, err := body.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if line, err = body.ReadString('\n'); err != nil || line != "\n" {
			t.Fatalf("after an event: %q, %v", line, err)
		}
		return m
	}
	if m := next(); m.Node != "n1" || len(m.Set) != 2 {
		t.Errorf("at first: %+v", m)
	}
	w.set(pod("a", true), pod("c", false))
	if m := next(); len(m.Set) != 1 || m.Set[0].Name != "default/c" || len(m.Gone) != 1 || m.Gone[0] != "pod uid-b" {
		t.Errorf("after a change: %+v", m)
	}
	close(stopping)
	if rest, err := io.ReadAll(body); err != nil || len(rest) != 0 {
		t.Errorf("when the server stops: %q, %v", rest, err)
	}
}

func TestPage(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	srv := serve(t, &world{changed: make(chan struct{})}, nil)
	for path, want := range map[string]string{
		"/ui/": "<title>csi-volmgr", "/ui/page.js": "EventSource", "/ui/page.css": "prefers-color-scheme",
		"/ui/explain/pod/default/web": "pod default/web: <fine>",
	} {
		answer := request(t, t.Context(), srv.URL+path, "")
		b, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(b), want) {
			t.Errorf("%s: %s, %v, without %q", path, answer.Status, err, want)
		}
		if csp := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", path, csp)
		}
		if strings.Contains(string(b), "http://") || strings.Contains(string(b), "https://") {
			t.Errorf("%s names something outside", path)
		}
	}
	if kind := request(t, t.Context(), srv.URL+"/ui/explain/pod/a/b", "").Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("an explanation is %q, and must never be taken for markup", kind)
	}
}

// A page from another name that resolves to this host can read nothing.
func TestOnlyByAddress(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	srv := serve(t, &world{changed: make(chan struct{})}, nil)
	for host, want := range map[string]int{
		"127.0.0.1:9811": 200, "localhost": 200, "[::1]:9811": 200, "10.0.0.7:1": 200,
		"evil.example:9811": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403,
	} {
		if got := request(t, t.Context(), srv.URL+"/ui/", host).StatusCode; got != want {
			t.Errorf("host %q: %d, want %d", host, got, want)
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	srv := serve(t, &world{changed: make(chan struct{})}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range maxStreams {
		if got := request(t, ctx, srv.URL+"/ui/rows", "").StatusCode; got != http.StatusOK {
			t.Fatalf("page %d: %d", i, got)
		}
	}
	if got := request(t, ctx, srv.URL+"/ui/rows", "").StatusCode; got != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", got)
	}
}
