package docker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/doors/docker"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// volumes answers with functions; one that is nil must not be called. It sends the calls
// that change something to made.
type volumes struct {
	t    *testing.T
	made chan string

	create func(named.Request) error
	get    func(context.Context, string) (named.View, error)
	list   func() ([]named.View, error)
	remove func(string) error
	mount  func(context.Context, string) (string, error)
}

func (v *volumes) Create(_ context.Context, r named.Request) error { return v.create(r) }

func (v *volumes) Get(ctx context.Context, name string) (named.View, error) { return v.get(ctx, name) }

func (v *volumes) List(context.Context) ([]named.View, error) { return v.list() }

func (v *volumes) Remove(_ context.Context, _ uint32, _ int32, name string) (string, error) {
	return "", v.remove(name)
}

func (v *volumes) Mount(ctx context.Context, name, id string, _ int32) (string, error) {
	v.made <- "mount " + name + " " + id
	return v.mount(ctx, name)
}

func (v *volumes) Unmount(ctx context.Context, name, id string) error {
	if ctx.Err() != nil {
		v.made <- "unmount with a context that has ended"
		return ctx.Err()
	}
	v.made <- "unmount " + name + " " + id
	return nil
}

// serve runs a server until the test ends, or until stop is called, which returns the result of Run.
func serve(t *testing.T, v *volumes) (client *http.Client, socket string, stop func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	v.t, v.made = t, make(chan string, 10)
	socket = filepath.Join(dir, "plugins", "csi.sock")
	s, err := docker.New(t.Context(), docker.Config{
		Socket: socket, Volumes: v, Logger: slog.New(slog.DiscardHandler),
		Explain: func(_ context.Context, claim string) []string { return []string{"verdict: fine of " + claim} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(client.CloseIdleConnections)
	return client, socket, stop
}

// post returns the status and the body of an answer; the error means that there was no answer.
func post(ctx context.Context, c *http.Client, method, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/"+method, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	answer, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, strings.TrimSpace(string(b))), err
}

func TestEachMethodAnswersInTheProtocolsForm(t *testing.T) {
	var asked named.Request
	v := &volumes{
		create: func(r named.Request) error {
			asked = r
			return nil
		},
		get: func(_ context.Context, name string) (named.View, error) {
			if name != "db" {
				return named.View{}, fmt.Errorf("volume %s: %w", name, named.ErrNotFound)
			}
			return named.View{
				Name: "db", Mountpoint: "/m/db", Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)),
				Claim: "default/db", Waits: []string{"for driver x"},
			}, nil
		},
		list: func() ([]named.View, error) {
			// dockerd would wait for its Create of one that is being created before it lists any.
			return []named.View{{Name: "a"}, {Name: "b", Mountpoint: "/m/b"}, {Name: "c", Creating: true}}, nil
		},
		remove: func(name string) error {
			if name == "gone" {
				return named.ErrNotFound // a repeated call, whose first answer was lost
			}
			return errors.New(`conflict: "in use"`)
		},
		mount: func(_ context.Context, name string) (string, error) { return "/m/" + name, nil },
	}
	client, _, _ := serve(t, v)
	for _, c := range []struct{ method, body, want string }{
		{"Plugin.Activate", "", `200 {"Implements":["VolumeDriver"]}`},
		{"VolumeDriver.Capabilities", "{}", `200 {"Capabilities":{"Scope":"local"}}`},
		{"VolumeDriver.Create", `{"Name":"db","Opts":{"size":"1Gi"}}`, `200 {}`},
		{
			"VolumeDriver.Get", `{"Name":"db"}`,
			`200 {"Volume":{"Name":"db","Mountpoint":"/m/db","CreatedAt":"2026-01-02T02:04:05Z","Status":{"claim":"default/db","explain":["verdict: fine of default/db"],"frontEnd":"","pod":"","waits":["for driver x"]}}}`,
		},
		{"VolumeDriver.Get", `{"Name":"nope"}`, `500 {"Err":"no such volume: nope"}`},
		{"VolumeDriver.Path", `{"Name":"db"}`, `200 {"Mountpoint":"/m/db"}`},
		{"VolumeDriver.List", "", `200 {"Volumes":[{"Name":"a"},{"Name":"b","Mountpoint":"/m/b"}]}`},
		{"VolumeDriver.List", "{}", `200 {"Volumes":[{"Name":"a"},{"Name":"b","Mountpoint":"/m/b"}]}`},
		{"VolumeDriver.Remove", `{"Name":"db"}`, `500 {"Err":"conflict: \"in use\""}`},
		{"VolumeDriver.Remove", `{"Name":"gone"}`, `200 {}`},
		{"VolumeDriver.Mount", `{"Name":"db","ID":"c1"}`, `200 {"Mountpoint":"/m/db"}`},
		{"VolumeDriver.Unmount", `{"Name":"db","ID":"c1"}`, `200 {}`},

		{"VolumeDriver.Get", `{}`, `500 {"Err":"field Name: expected a text, found none"}`},
		{"VolumeDriver.Mount", `{"Name":"db"}`, `500 {"Err":"field ID: expected a text, found none"}`},
		{"VolumeDriver.Get", `{"Name":"db","More":1}`, `500 {"Err":"decode the request: json: unknown field \"More\""}`},
		{
			"VolumeDriver.Get", `{"Name":"db"}{"Name":"db"}`,
			`500 {"Err":"decode the request: expected one JSON object, found more after it"}`,
		},
		{"VolumeDriver.Get", `{"Name":"` + strings.Repeat("a", 256<<10) + `"}`, `500 {"Err":"request of over 262144 bytes"}`},
		{"VolumeDriver.Other", "{}", `500 {"Err":"POST /VolumeDriver.Other: the volume plugin has no such method"}`},
	} {
		got, err := post(t.Context(), client, c.method, c.body)
		if err != nil || got != c.want {
			t.Errorf("%s %.80s: got %s, %v, want %s", c.method, c.body, got, err, c.want)
		}
	}
	if asked.Name != "db" || asked.FrontEnd != named.Docker || asked.Options["size"] != "1Gi" {
		t.Errorf("asked for %+v", asked)
	}
	for _, want := range []string{"mount db c1", "unmount db c1"} {
		if got := <-v.made; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// dockerd forgets a volume if any answer to Get lacks it.
func TestWhatIsNotKnownIsNotAnswered(t *testing.T) {
	asked := make(chan string, 1)
	unknown := fmt.Errorf("%w: %w", named.ErrNotFound, named.ErrUnknown) // ErrUnknown wins
	v := &volumes{
		get: func(_ context.Context, name string) (named.View, error) {
			asked <- name
			return named.View{}, unknown
		},
		list: func() ([]named.View, error) {
			asked <- "list"
			return nil, unknown
		},
	}
	client, socket, stop := serve(t, v)
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 3)
	for _, c := range []struct{ method, body string }{
		{"VolumeDriver.Get", `{"Name":"db"}`}, {"VolumeDriver.Path", `{"Name":"db"}`}, {"VolumeDriver.List", ""},
	} {
		go func() {
			text, err := post(t.Context(), client, c.method, c.body)
			answers <- answer{text, err}
		}()
		<-asked
	}
	// The server holds the three answers back, although it answers a later request.
	if got, err := post(t.Context(), client, "Plugin.Activate", ""); err != nil {
		t.Fatalf("got %s, %v", got, err)
	}
	select {
	case a := <-answers:
		t.Errorf("answered %+v while the client waits", a)
	default:
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for range 3 {
		if a := <-answers; a.err == nil {
			t.Errorf("answered %s", a.text)
		}
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// If a client gives up waiting, its request ends.
func TestClientThatGivesUpEndsItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	v := &volumes{get: func(ctx context.Context, _ string) (named.View, error) {
		cancel()
		<-ctx.Done()
		close(ended)
		return named.View{}, fmt.Errorf("%w: %w", named.ErrUnknown, ctx.Err())
	}}
	client, _, _ := serve(t, v)
	if got, err := post(ctx, client, "VolumeDriver.Get", `{"Name":"db"}`); !errors.Is(err, context.Canceled) {
		t.Errorf("got %s, %v", got, err)
	}
	<-ended
}

// A client that has gone does not know of its mount, and podman sends no Unmount for it.
func TestMountOfClientThatHasGoneIsTakenBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v := &volumes{mount: func(ctx context.Context, _ string) (string, error) {
		cancel()
		<-ctx.Done()
		return "/m/db", nil
	}}
	client, _, _ := serve(t, v)
	if got, err := post(ctx, client, "VolumeDriver.Mount", `{"Name":"db","ID":"c1"}`); !errors.Is(err, context.Canceled) {
		t.Errorf("got %s, %v", got, err)
	}
	for _, want := range []string{"mount db c1", "unmount db c1"} {
		if got := <-v.made; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// At a stop the server still answers a request under way if it succeeds, but not if it
// fails, since the stop may be the cause: dockerd asks the next daemon.
func TestStopAnswersWhatSucceeds(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{nil, `200 {"Mountpoint":"/m/db"}`}, {errors.New("the node stops"), ""}} {
		under, goOn := make(chan struct{}), make(chan struct{})
		v := &volumes{mount: func(context.Context, string) (string, error) {
			close(under)
			<-goOn
			return "/m/db", c.err
		}}
		client, socket, stop := serve(t, v)
		stopped := make(chan error, 1)
		go func() {
			<-under
			go func() { stopped <- stop() }()
			for { // until the server stops listening: the stop has begun
				conn, err := net.Dial("unix", socket)
				if err != nil {
					break
				}
				conn.Close()
			}
			close(goOn)
		}()
		got, err := post(t.Context(), client, "VolumeDriver.Mount", `{"Name":"db","ID":"c1"}`)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%v: got %s, %v, want %s", c.err, got, err, c.want)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

func TestUsersButRootAreRefused(t *testing.T) {
	client, socket, _ := serve(t, &volumes{})
	for path, mode := range map[string]os.FileMode{
		filepath.Dir(filepath.Dir(socket)): 0o755, filepath.Dir(socket): 0o755, socket: 0o666,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	const other = 65534
	client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return connectAs(other, socket)
	}
	got, err := post(t.Context(), client, "Plugin.Activate", "")
	if want := `500 {"Err":"user 65534 may not use the volume plugin, only root may"}`; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// connectAs connects to a socket as another user.
func connectAs(uid uintptr, socket string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	connected := make(chan result)
	go func() {
		runtime.LockOSThread() // the thread, and its user, end with the goroutine
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same); errno != 0 {
			connected <- result{nil, errno}
			return
		}
		conn, err := net.Dial("unix", socket)
		connected <- result{conn, err}
	}()
	r := <-connected
	return r.conn, r.err
}

func TestSocketOfSystemdIsServedAndStays(t *testing.T) {
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "csi.sock")
	owner, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	passed, err := owner.File()
	if err != nil {
		t.Fatal(err)
	}
	cfg := docker.Config{Socket: path, Passed: passed, Volumes: &volumes{}, Logger: slog.New(slog.DiscardHandler)}
	s, err := docker.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := docker.New(t.Context(), docker.Config{Socket: path, Logger: cfg.Logger}); err == nil {
		t.Error("a second daemon takes the socket")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	if got, err := post(t.Context(), client, "Plugin.Activate", ""); err != nil || !strings.HasPrefix(got, "200 ") {
		t.Errorf("got %s, %v", got, err)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket went with the daemon: %v", err)
	}
}
