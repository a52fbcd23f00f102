package operate

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const handedOver = state.DriverName("d.example")

// memoryJournal is a journal in memory that has lost nothing.
type memoryJournal struct{ *journal.Memory }

func (memoryJournal) Recovery() state.Recovery { return state.Recovery{} }

// noControllers has no controllers, and can call none.
type noControllers struct{ Controllers }

func (noControllers) RemoveController(state.DriverName) {}

// registrarRig is a Registrar with a journal in memory.
type registrarRig struct {
	*Registrar
	dir    string
	memory *journal.Memory
	stop   func() // ends Run
}

// newRegistrarRig runs a Registrar whose journal has the driver; its registration sockets are to be in dir.
func newRegistrarRig(t *testing.T, dir string, values map[string][]byte) *registrarRig {
	t.Helper()
	memory := journal.NewMemory()
	if err := memory.CommitBucket(t.Context(), operatorBucket, values); err != nil {
		t.Fatal(err)
	}
	r := NewRegistrar(RegistrarConfig{Dir: dir, Journal: memoryJournal{memory}, Logger: slog.New(slog.DiscardHandler), Controllers: noControllers{}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop := func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	if err := r.ask(t.Context(), func(context.Context) {}); err != nil { // the journal is read
		t.Fatal(err)
	}
	return &registrarRig{r, dir, memory, stop}
}

// node returns a client of the driver's registration socket, which waits for the socket.
func (r *registrarRig) node(t *testing.T) registerapi.RegistrationClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(r.dir, string(handedOver)+"-reg.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond,
		}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return registerapi.NewRegistrationClient(conn)
}

// A driver whose registration failed at the start, as beside another registrar, is registered when the operator hands
// it over again.
func TestADriverWhoseRegistrationEndedIsRegisteredAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	r := newRegistrarRig(t, dir, map[string][]byte{registeredPrefix + string(handedOver): []byte("/run/d.sock")})
	var failed *announced
	if err := r.ask(t.Context(), func(context.Context) { failed = r.drivers[handedOver] }); err != nil {
		t.Fatal(err)
	}
	<-failed.ended
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- r.handOver(t.Context(), handedOver, "/run/d.sock", nil) }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := r.node(t).NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Fatalf("no registration is offered: %v", err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
}

// A daemon that stops before the driver is registered says so, and does not register it with its next start.
func TestAStopIsNoRegistration(t *testing.T) {
	r := newRegistrarRig(t, t.TempDir(), nil)
	asked := make(chan error, 1)
	go func() { asked <- r.handOver(t.Context(), handedOver, "/run/d.sock", nil) }()
	if _, err := r.node(t).GetInfo(t.Context(), &registerapi.InfoRequest{}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := <-asked; err == nil {
		t.Error("the driver is said to be registered")
	}
	if v, err := r.memory.LoadBucket(t.Context(), operatorBucket); err != nil || len(v.Sound) != 0 {
		t.Errorf("the journal has %v, %v", v.Sound, err)
	}
}
