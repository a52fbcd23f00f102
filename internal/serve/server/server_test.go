package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The tests in this file use sockets, processes and raw HTTP; those of package client use every path as programs do.

// unixGet sends one raw request to the socket.
func unixGet(t *testing.T, socket, method, path string, body io.Reader) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func httpGet(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Items: N-06.
// Attacks: C25.
func TestSocketIsForItsOwnerOnlyAndGoesWithTheServer(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	_, stop := start(t, cfg)
	for path, want := range map[string]os.FileMode{cfg.Socket: 0o600, filepath.Dir(cfg.Socket): 0o700} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, st.Mode().Perm(), want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Dir(cfg.Socket))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSecondDaemonIsRefusedAndHarmsNothing(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	start(t, cfg)
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Fatalf("got %v, want another daemon", err)
	}
	if code, body := unixGet(t, cfg.Socket, "GET", "/v1/version", nil); code != 200 {
		t.Errorf("the first daemon answers %d %s", code, body)
	}
}

// The server recognizes a daemon without a lock (another program, another version) by its answer.
func TestSocketAtWhichSomebodyAnswersIsLeftAlone(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("got %v, want another process answers", err)
	}
	if _, err := os.Stat(cfg.Socket + ".lock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock stayed: %v", err)
	}
}

func TestSocketOfADeadDaemonIsReplaced(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(l.Close(), os.WriteFile(cfg.Socket+".lock", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
	if code, _ := unixGet(t, cfg.Socket, "GET", "/v1/version", nil); code != 200 {
		t.Errorf("got %d", code)
	}
}

func TestWhatIsNoSocketIsNeverRemoved(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	if err := errors.Join(os.MkdirAll(filepath.Dir(cfg.Socket), 0o700), os.WriteFile(cfg.Socket, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v, want that it is not a socket", err)
	}
	if b, err := os.ReadFile(cfg.Socket); err != nil || string(b) != "mine" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

func TestSocketPathThatDoesNotFitIsNamed(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	for _, path := range []string{"", "/" + strings.Repeat("a", unixsocket.MaxPath)} {
		cfg.Socket = path
		if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%d bytes: got %v", len(path), err)
		}
	}
}

func TestTakenHTTPAddressGivesTheSocketBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := config(t, newBackend(Facts{}))
	cfg.HTTPAddress = l.Addr().String()
	if _, err := New(t.Context(), cfg); err == nil {
		t.Fatal("got nil")
	}
	if _, err := os.Stat(cfg.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stayed: %v", err)
	}
}

const (
	strangerSocket = "SERVER_TEST_STRANGER_SOCKET"
	strangerAsks   = "SERVER_TEST_STRANGER_ASKS" // method and path
)

// askedAsStranger sends a request to the socket and prints the answer, if the test started this process as another
// user.
func askedAsStranger() bool {
	socket := os.Getenv(strangerSocket)
	if socket == "" {
		return false
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		return true
	}
	_, err = io.WriteString(conn, os.Getenv(strangerAsks)+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	b, err2 := io.ReadAll(conn)
	fmt.Println(string(b), errors.Join(err, err2))
	return true
}

// The server checks the peer's credentials from the kernel, not only the file's mode. A user who may only read sees
// no password in a volume's attributes or mount options.
//
// Attacks: C55.
func TestOtherUserIsRefusedByHisCredentials(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test starts a process as another user: run it as root")
	}
	dir, err := os.MkdirTemp("", "server")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	exe := filepath.Join(dir, "ask")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const canary = "CANARY"
	cfg := config(t, newBackend(Facts{Volumes: []manager.VolumeStatus{{Volume: state.Volume{
		ID: "d^v", PublishContext: map[string]string{"chapPassword": canary},
		Spec: &state.Spec{
			Driver: "d", Name: "pv", MountFlags: []string{"ro", "vers=3.1", "pass=" + canary}, Config: []byte(`{"authFile":"` + canary + `","path":"/x"}`),
			Context:        map[string]string{"adminPassword": canary, "server": "https://web:" + canary + "@nas/x", "secretName": "login", "pool": "fast"},
			PublishContext: map[string]string{"token": canary},
		},
		Mounts: map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Context: map[string]string{"sasKey": canary}}}},
	}}}}))
	cfg.Socket = filepath.Join(dir, "api.sock")
	const readers = 4711
	cfg.Readers, cfg.Profiles, cfg.Operator, cfg.Storage = readers, true, operator{t}, operator{t}
	start(t, cfg)
	if st, err := os.Stat(cfg.Socket); err != nil || st.Mode().Perm() != 0o660 || st.Sys().(*syscall.Stat_t).Gid != readers {
		t.Errorf("the socket: %v, %v; want 0660 and the readers' group", st.Mode(), err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(cfg.Socket, 0o666), os.WriteFile(exe, self, 0o755), os.Chmod(exe, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid, gid     uint32
		groups       []uint32
		method, path string
		want         string
	}{
		{65534, 65534, nil, "GET", "/v1/version", "403 Forbidden"},
		{65534, readers, nil, "GET", "/v1/version", "200 OK"},
		{65534, 65534, []uint32{7, readers}, "GET", "/v1/volumes", "200 OK"},
		{65534, readers, nil, "GET", "/v1/volumes/d%5Ev", `"secretName":"login","server":"https://***redacted***@nas/x"`},
		{65534, readers, nil, "GET", "/v1/volumes/d%5Ev", `"mountFlags":["ro","vers=3.1","pass=***redacted***"]`},
		{65534, readers, nil, "GET", "/v1/volumes", `"pool":"fast"`},
		{0, 0, nil, "GET", "/v1/volumes", canary},
		{0, 0, nil, "GET", "/v1/volumes/d%5Ev", "pass=" + canary},
		{65534, readers, nil, "DELETE", "/v1/claims/default/data", "403 Forbidden"},
		{65534, readers, nil, "POST", "/v1/apply", "403 Forbidden"},
		{65534, readers, nil, "POST", "/v1/check", "403 Forbidden"},
		{65534, readers, nil, "GET", "/debug/pprof/cmdline", "403 Forbidden"},
		{65534, readers, nil, "GET", "/v1/who?path=/root", "403 Forbidden"},
		{0, 0, nil, "GET", "/v1/who?path=/root", "200 OK"},
		{65534, readers, nil, "GET", "/v1/snapshots/default/monday/blocks", "403 Forbidden"},
		{0, 0, nil, "GET", "/v1/snapshots/default/monday/blocks", "200 OK"},
		{0, 0, nil, "GET", "/v1/version", "200 OK"},
		{0, 0, nil, "GET", "/debug/pprof/goroutine?debug=1", "200 OK"},
	} {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = []string{strangerSocket + "=" + cfg.Socket, strangerAsks + "=" + tt.method + " " + tt.path}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tt.uid, Gid: tt.gid, Groups: tt.groups}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%+v: %v:\n%s", tt, err, out)
		}
		if tt.uid != 0 && strings.Contains(string(out), canary) {
			t.Errorf("%+v: a secret is shown:\n%s", tt, out)
		}
	}
}

func TestRequestsWithoutCredentialsAreRefused(t *testing.T) {
	if err := credentials(nil).allowed("GET", 1); !errors.Is(err, ErrForbidden) {
		t.Errorf("got %v, want ErrForbidden", err)
	}
}

func TestHostileNamesAndSizesAreRefused(t *testing.T) {
	b := newBackend(allFine())
	cfg := config(t, b)
	start(t, cfg)
	big := strings.NewReader(strings.Repeat("a", MaxManifest+1))
	for _, tt := range []struct {
		method, path, reason string
		body                 io.Reader
	}{
		{"GET", "/v1/pods/default/..%2f..%2fetc", "invalid", nil},
		{"DELETE", "/v1/pods/default/a%00b", "invalid", nil},
		{"DELETE", "/v1/claims/de%2ffault/data", "invalid", nil},
		{"DELETE", "/v1/claims/default/" + strings.Repeat("a", 4096), "invalid", nil},
		{"GET", "/v1/pods/default/absent", "notFound", nil},
		{"GET", "/v1/pods/default/absent/mounts", "notFound", nil},
		{"GET", "/v1/volumes/no%5Esuch", "notFound", nil},
		{"GET", "/v1/explain/node/x", "invalid", nil},
		{"GET", "/v1/pods/default/web/wait?for=love&timeout=1s", "invalid", nil},
		{"GET", "/v1/pods/default/web/wait?for=mounted&timeout=-1s", "invalid", nil},
		{"GET", "/v1/pods/default/web/wait?for=mounted&timeout=1000h", "invalid", nil},
		{"GET", "/v2/pods", "notFound", nil},
		{"POST", "/v1/apply", "tooLarge", big},
		{"POST", "/v1/check", "tooLarge", strings.NewReader(strings.Repeat("a", MaxManifest+1))},
	} {
		code, body := unixGet(t, cfg.Socket, tt.method, tt.path, tt.body)
		if code < 400 || !strings.Contains(body, `"reason":"`+tt.reason+`"`) || !strings.Contains(body, `"error":"`) {
			t.Errorf("%s %.60s: got %d %s, want reason %s", tt.method, tt.path, code, body, tt.reason)
		}
	}
	if len(b.deleted) > 0 || len(b.applied) > 0 {
		t.Errorf("a refused request reached the daemon: %v %v", b.deleted, b.applied)
	}
}

func TestOnlySoManyStreamsAreServed(t *testing.T) {
	s, _ := start(t, config(t, newBackend(Facts{})))
	var free []func()
	for range maxStreams {
		f, err := s.streams.take(peer{})
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, f)
	}
	code, body := unixGet(t, s.cfg.Socket, "GET", "/v1/pods?watch=true", nil)
	if code != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"busy"`) {
		t.Errorf("got %d %s, want 503 busy", code, body)
	}
	for _, f := range free {
		f()
	}
	if code, _ := unixGet(t, s.cfg.Socket, "GET", "/v1/pods", nil); code != 200 {
		t.Errorf("a list is answered with %d", code)
	}
}

func TestMetricsHealthAndReadiness(t *testing.T) {
	b := newBackend(Facts{})
	s, _ := start(t, config(t, b))
	base := "http://" + s.HTTPAddress()
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\ndegraded: the journal may have lost records\n", "/metrics": ""} {
		if code, body := httpGet(t, base+path); code != 200 || body != want {
			t.Errorf("%s: got %d %q, want 200 %q", path, code, body, want)
		}
	}
	b.set(func(f *Facts) { f.NotReady = []string{"source file: not read yet"} })
	if code, body := httpGet(t, base+"/readyz"); code != 503 || !strings.Contains(body, "source file: not read yet") {
		t.Errorf("got %d %q, want 503 with the reason", code, body)
	}
	b.set(func(f *Facts) { f.NotReady = nil })
	b.blocked = "the disk of the journal is full"
	if code, body := httpGet(t, base+"/readyz"); code != 503 || body != "the disk of the journal is full\n" {
		t.Errorf("got %d %q, want 503 with the reason", code, body)
	}
	if code, _ := httpGet(t, base+"/v1/pods"); code != 404 {
		t.Errorf("the API is served on the open port: %d", code)
	}
}

func TestNoHTTPAddressMeansNoPort(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	cfg.HTTPAddress = ""
	s, _ := start(t, cfg)
	if got := s.HTTPAddress(); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestServerThatIsNeverRunLeavesNothing(t *testing.T) {
	cfg := config(t, newBackend(Facts{}))
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(cfg.Socket))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	l, err := net.Listen("tcp", s.HTTPAddress())
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	_ = l.Close()
}

// The audit log receives each apply, withdraw and delete, with the user.
func TestWhatIsAskedOfObjectsIsNoted(t *testing.T) {
	b := newBackend(allFine())
	cfg := config(t, b)
	var noted []string
	cfg.Note = func(a audit.Act, result string, err error) {
		noted = append(noted, fmt.Sprintf("%d %s %s: %s %v", a.By.UID, a.Verb, a.Object, result, err))
	}
	start(t, cfg)
	unixGet(t, cfg.Socket, "POST", "/v1/apply?file=web.yaml", strings.NewReader("x"))
	unixGet(t, cfg.Socket, "POST", "/v1/check?file=web.yaml", strings.NewReader("x")) // changes nothing
	unixGet(t, cfg.Socket, "POST", "/v1/withdraw?file=web.yaml", strings.NewReader("x"))
	unixGet(t, cfg.Socket, "DELETE", "/v1/pods/default/web", nil)
	b.err = ErrNotFound
	unixGet(t, cfg.Socket, "DELETE", "/v1/pods/default/nosuch", nil)
	me := os.Geteuid()
	want := []string{
		fmt.Sprintf("%d apply web.yaml: created pod default/web <nil>", me), fmt.Sprintf("%d withdraw web.yaml: kept pvc default/data <nil>", me),
		fmt.Sprintf("%d delete pod default/web:  <nil>", me), fmt.Sprintf("%d delete pod default/nosuch:  pod default/nosuch: not found", me),
	}
	if !slices.Equal(noted, want) {
		t.Errorf("noted %q, want %q", noted, want)
	}
}
