package localdriver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// register starts the registration of a driver in dir, and returns when its socket exists.
// stop ends it.
func register(t *testing.T, d *Driver, dir string) (stop func()) {
	t.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Register(ctx, RegisterConfig{Dir: dir, Endpoint: "unix:///run/csi.sock"}) }()
	for {
		select {
		case e := <-watcher.Events:
			// When a socket first appears under this name, it already answers.
			if e.Has(fsnotify.Create) && strings.HasSuffix(e.Name, "-reg.sock") {
				conn, err := unixsocket.Dial(ctx, e.Name)
				if err != nil {
					t.Errorf("dial at once: %v", err)
				} else {
					conn.Close()
				}
				return func() {
					cancel()
					if err := <-done; err != nil {
						t.Errorf("Register: %v", err)
					}
				}
			}
		case err := <-done:
			cancel()
			t.Fatalf("Register: %v", err)
		}
	}
}

// Items: N-06.
func TestRegistrationSocketSpeaksTheProtocol(t *testing.T) {
	r := newRig(t)
	dir := r.path("plugins_registry")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "local.csi-volmgr.dev-reg.sock")
	// The socket that a killed driver leaves is replaced.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()

	stop := register(t, r.d, dir)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("socket is %v, %v, want it open to its owner only", info.Mode(), err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := registerapi.NewRegistrationClient(conn)
	info, err := client.GetInfo(r.ctx, &registerapi.InfoRequest{})
	if err != nil || info.GetType() != registerapi.CSIPlugin || info.GetName() != "local.csi-volmgr.dev" ||
		info.GetEndpoint() != "/run/csi.sock" || len(info.GetSupportedVersions()) != 1 || info.GetSupportedVersions()[0] != "1.0.0" {
		t.Errorf("GetInfo = %v, %v", info, err)
	}
	// A refusal is logged, and the driver lives on.
	for _, registered := range []bool{false, true} {
		if _, err := client.NotifyRegistrationStatus(r.ctx, &registerapi.RegistrationStatus{PluginRegistered: registered, Error: "no"}); err != nil {
			t.Errorf("NotifyRegistrationStatus(%v) = %v", registered, err)
		}
	}
	if _, err := client.GetInfo(r.ctx, &registerapi.InfoRequest{}); err != nil {
		t.Errorf("GetInfo after a refusal: %v", err)
	}
	// A second driver of that name must not take the place of a live one.
	if err := r.d.Register(r.ctx, RegisterConfig{Dir: dir, Endpoint: "/run/csi.sock"}); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("second Register = %v, want a refusal", err)
	}
	conn.Close()
	stop()
	wantGone(t, socket)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the registry: %v, %v", left, err)
	}
}

// A node manager that sees the registration dials the driver at once.
func TestRegistersOnlyWhatServes(t *testing.T) {
	dir := t.TempDir()
	d, err := New(Config{NodeID: "node-1", StateDir: dir + "/state"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Register(ctx, RegisterConfig{Dir: dir, Endpoint: "/run/csi.sock"}); err != nil {
		t.Error(err)
	}
	select {
	case e := <-watcher.Events:
		t.Errorf("%v before the driver served", e)
	default:
	}
}

func TestSocketPathMayBeLong(t *testing.T) {
	r := newRig(t)
	dir := r.path(strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	register(t, r.d, dir)()
}

func TestSocketTakenByAnotherIsNotRemoved(t *testing.T) {
	path := t.TempDir() + "/a.sock"
	l, err := listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("another's"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l.remove()
	wantFile(t, path, "another's")
	if _, err := listen(t.Context(), path); err == nil {
		t.Error("listen replaced a file that is no socket")
	}
}
