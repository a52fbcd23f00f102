package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func dialUnix(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Until it is stopped, the verb serves the driver and its registration at the usual paths
// below the root.
// Items: N-03.
func TestLocalDriverServesAndRegisters(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	root := t.TempDir()
	var stderr strings.Builder
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr, now: time.Now, euid: func() int { return 0 }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- p.run(ctx, []string{"local-driver", "--root-dir", root, "--state-dir", filepath.Join(root, "data"), "--node-id", "n1", "--name", "x.example.com"})
	}()
	endpoint := filepath.Join(root, "plugins", "x.example.com", "csi.sock")
	plugin, err := csi.NewIdentityClient(dialUnix(t, endpoint)).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil || plugin.GetName() != "x.example.com" {
		t.Errorf("driver: %v, %v", plugin, err)
	}
	registrar := registerapi.NewRegistrationClient(dialUnix(t, filepath.Join(root, "plugins_registry", "x.example.com-reg.sock")))
	info, err := registrar.GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetEndpoint() != endpoint || info.GetName() != "x.example.com" {
		t.Errorf("registration: %v, %v", info, err)
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d: %s", got, stderr.String())
	}
}

// If a driver cannot serve, the verb ends, and so does the registration.
func TestLocalDriverThatCannotServeFails(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	root := t.TempDir()
	var stderr strings.Builder
	p := &program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr, now: time.Now, euid: func() int { return 0 }}
	code := p.run(t.Context(), []string{
		"local-driver", "--root-dir", root, "--state-dir", filepath.Join(root, "data"),
		"--endpoint", "/proc/driver/csi.sock",
	})
	if code != exitFailed || !strings.Contains(stderr.String(), "csi-volmgr: ") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}

// The verb registers a driver that does not register itself, under the name that the driver
// says, until the verb is stopped.
//
// Sidecars: SN-01.
func TestDriverIsRegisteredInPlaceOfARegistrar(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	root := t.TempDir()
	endpoint, dir := filepath.Join(root, "csi.sock"), filepath.Join(root, "registry")
	var stderr strings.Builder
	start := func(p *program, args ...string) (stop func() int) {
		ctx, cancel := context.WithCancel(t.Context())
		code := make(chan int, 1)
		go func() { code <- p.run(ctx, args) }()
		return func() int { cancel(); return <-code }
	}
	euid := func() int { return 0 }
	// The verb waits for the driver, which starts later.
	end := start(&program{stderr: &stderr, now: time.Now, euid: euid}, "driver", "register", "unix://"+endpoint, "--registration-dir", dir)
	driver := start(&program{stderr: io.Discard, now: time.Now, euid: euid}, "local-driver", "--root-dir", root, "--state-dir", filepath.Join(root, "data"),
		"--node-id", "n1", "--name", "x.example.com", "--endpoint", endpoint, "--registration-dir", filepath.Join(root, "elsewhere"))
	socket := filepath.Join(dir, "x.example.com-reg.sock")
	registrar := registerapi.NewRegistrationClient(dialUnix(t, socket))
	info, err := registrar.GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetEndpoint() != endpoint || info.GetName() != "x.example.com" || info.GetType() != registerapi.CSIPlugin {
		t.Errorf("%v, %v", info, err)
	}
	for _, s := range []*registerapi.RegistrationStatus{{Error: "another has that name"}, {PluginRegistered: true}} {
		if _, err := registrar.NotifyRegistrationStatus(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	if code := end(); code != exitDone || !strings.Contains(stderr.String(), "was refused: another has that name") || !strings.Contains(stderr.String(), "is registered") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the registration is left: %v", err)
	}
	driver()
}
