package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an event before it fails. No test passes because of it.
const patience = 2 * time.Minute

// registrar is a plugin's registration server on a real socket.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	t        *testing.T
	path     string
	info     *registerapi.PluginInfo
	hang     chan struct{} // GetInfo waits for it if not nil
	told     chan *registerapi.RegistrationStatus
	answer   func(*registerapi.RegistrationStatus) error
	user     uint32       // who listens; 0 is root
	asked    atomic.Int64 // how often GetInfo was called
	server   *grpc.Server
	listener *countingListener
	served   chan struct{}
}

// csi returns the info of an ordinary driver.
func csi(name string) *registerapi.PluginInfo {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: name, Endpoint: "/csi/" + name + ".sock", SupportedVersions: []string{"1.0.0"}}
}

// serve starts a registrar at path; change adjusts it first.
func serve(t *testing.T, path string, info *registerapi.PluginInfo, change ...func(*registrar)) *registrar {
	t.Helper()
	r := &registrar{
		t: t, path: path, info: info,
		told:   make(chan *registerapi.RegistrationStatus, 100),
		server: grpc.NewServer(), served: make(chan struct{}),
	}
	for _, c := range change {
		c(r)
	}
	registerapi.RegisterRegistrationServer(r.server, r)
	r.listener = &countingListener{Listener: r.listen(path)}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(r.listener)
	}()
	t.Cleanup(r.die)
	return r
}

// ofUser makes a process of this user listen.
func ofUser(uid uint32) func(*registrar) { return func(r *registrar) { r.user = uid } }

func (r *registrar) listen(path string) net.Listener {
	if r.user == 0 {
		return listen(r.t, path)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), as(r.user, func() error { return unix.Listen(fd, 10) })); err != nil {
		r.t.Fatalf("listen as user %d, which only root may: %v", r.user, err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// as runs do as another user, on this thread alone; [unix.Setresuid] would change the whole process.
func as(uid uint32, do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	become := func(uid uintptr) error {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same); e != 0 {
			return e
		}
		return nil
	}
	if err := become(uintptr(uid)); err != nil {
		return err
	}
	err := do()
	if err := become(0); err != nil {
		panic(err) // the thread cannot be used any more
	}
	return err
}

// listen binds path, which may be too long for a socket address.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	if len(path) > unixsocket.MaxPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l
}

type countingListener struct {
	net.Listener
	mu       sync.Mutex
	accepted int
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.accepted++
		l.mu.Unlock()
	}
	return c, err
}

// die ends the process, as kill -9 does: its socket file stays.
func (r *registrar) die() {
	r.server.Stop()
	<-r.served
}

// quit ends the process and removes its socket file.
func (r *registrar) quit() {
	r.die()
	remove(r.t, r.path)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func (r *registrar) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	r.asked.Add(1)
	if r.hang != nil {
		select {
		case <-r.hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r.info, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	var err error
	if r.answer != nil {
		err = r.answer(s)
	}
	r.told <- s
	return &registerapi.RegistrationStatusResponse{}, err
}

// news waits for the next notification.
func (r *registrar) news() *registerapi.RegistrationStatus {
	r.t.Helper()
	select {
	case s := <-r.told:
		return s
	case <-time.After(patience):
		r.t.Fatal("the registrar was told nothing")
		return nil
	}
}

// recorder is a Handler that records what happened, in order, and fails the test if it was
// not allowed.
type recorder struct {
	mu     sync.Mutex
	log    []string
	up     map[state.DriverName]Plugin
	bad    []string
	refuse func(Plugin) error
	onDown func(Plugin)
}

func (r *recorder) Up(_ context.Context, p Plugin) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(p); err != nil {
			r.log = append(r.log, fmt.Sprintf("fail %s", p.Name))
			return err
		}
	}
	if old, ok := r.up[p.Name]; ok {
		r.bad = append(r.bad, fmt.Sprintf("up %s of %s while %s is up", p.Name, p.socket, old.socket))
	}
	if r.up == nil {
		r.up = map[state.DriverName]Plugin{}
	}
	r.up[p.Name] = p
	r.log = append(r.log, fmt.Sprintf("up %s %s", p.Name, filepath.Base(p.socket)))
	return nil
}

func (r *recorder) Down(p Plugin, reason string) {
	if r.onDown != nil {
		r.onDown(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up[p.Name].generation != p.generation {
		r.bad = append(r.bad, fmt.Sprintf("down of generation %d of %s, up is %d", p.generation, p.Name, r.up[p.Name].generation))
	}
	if reason == "" {
		r.bad = append(r.bad, "down without a reason")
	}
	delete(r.up, p.Name)
	r.log = append(r.log, fmt.Sprintf("down %s %s", p.Name, filepath.Base(p.socket)))
}

func (r *recorder) plugin(name state.DriverName) Plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up[name]
}

func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// world is a watcher that runs on a directory of its own.
type world struct {
	t   *testing.T
	dir string
	h   *recorder
	w   *Watcher
	end func()
}

// start runs a watcher on dir; when the test ends, every driver must be down.
func start(t *testing.T, dir string, change ...func(*Watcher, *recorder)) *world {
	t.Helper()
	h := &recorder{}
	w := New(Config{Dir: dir, Handler: h})
	for _, c := range change {
		c(w, h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stopped := false
	end := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if len(h.up) > 0 || len(h.bad) > 0 {
			t.Errorf("after Run: up %v, wrong %q", h.up, h.bad)
		}
	}
	t.Cleanup(end)
	wait(t, w.Synced(), "the first scan")
	return &world{t: t, dir: dir, h: h, w: w, end: end}
}

func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

func (x *world) path(name string) string { return filepath.Join(x.dir, name) }

// until waits until ok holds for the socket of that name.
func (x *world) until(name string, ok func(SocketStatus) bool) SocketStatus {
	x.t.Helper()
	late := time.After(patience)
	for {
		changed := x.w.Changed()
		all := x.w.Sockets()
		for _, s := range all {
			if s.Path == x.path(name) && ok(s) {
				return s
			}
		}
		select {
		case <-changed:
		case <-late:
			x.t.Fatalf("waited in vain; sockets: %+v", all)
		}
	}
}

func (x *world) untilState(name string, want State) SocketStatus {
	x.t.Helper()
	return x.until(name, func(s SocketStatus) bool { return s.State == want })
}

// untilGone waits until the watcher knows no socket of that name.
func (x *world) untilGone(name string) {
	x.t.Helper()
	late := time.After(patience)
	for {
		changed := x.w.Changed()
		if !slices.ContainsFunc(x.w.Sockets(), func(s SocketStatus) bool { return s.Path == x.path(name) }) {
			return
		}
		select {
		case <-changed:
		case <-late:
			x.t.Fatalf("%s is still known", name)
		}
	}
}

var errTest = errors.New("not today")
