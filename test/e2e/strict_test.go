package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// verdicts sums up the strict driver's verdicts on all nodes.
var verdicts verdict

type verdict struct {
	mu                       sync.Mutex
	nodes, calls, complaints int
}

func (v *verdict) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprintf("strict driver: %d nodes, %d calls judged, %d complaints", v.nodes, v.calls, v.complaints)
}

// judged fails the test for each rule that the daemon broke.
func (n *node) judged() {
	n.T.Helper()
	events, err := csistrict.ReadTranscript(n.driver.stateDir())
	if err != nil || len(events) == 0 {
		n.T.Errorf("transcript of the strict driver: %d events, %v", len(events), err)
	}
	calls := 0
	for _, e := range events {
		if e.Event == csistrict.EventBegin {
			calls++
		}
	}
	breaches := csistrict.Breaches(events)
	for _, b := range breaches {
		n.T.Errorf("breach of %s by %s of %s: %s", b.Rule, b.Call, b.Volume, b.Text)
	}
	n.T.Logf("%d calls judged, %d complaints", calls, len(breaches))
	verdicts.mu.Lock()
	defer verdicts.mu.Unlock()
	verdicts.nodes, verdicts.calls, verdicts.complaints = verdicts.nodes+1, verdicts.calls+calls, verdicts.complaints+len(breaches)
}

// allTakenBack fails the test for everything that the strict driver was never asked to
// remove.
func (n *node) allTakenBack() {
	n.T.Helper()
	model, err := csistrict.ReadModel(n.driver.stateDir())
	if err != nil {
		n.T.Error(err)
	}
	for _, left := range model.Left() {
		n.T.Errorf("never taken back: %s", left)
	}
}

// try starts and kills a driver as the tests do, and returns an error if the tests cannot
// work with it. Otherwise every test would wait for something that never comes.
func try(k kind, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	socket := filepath.Join(dir, "csi.sock")
	cmd := k.command(socket, filepath.Join(dir, "state"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the driver: %w", err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	err = k.known(socket, ended)
	harness.KillGroup(cmd)
	<-ended
	if served(socket) {
		err = cmp.Or(err, errors.New("it was killed and its socket is still served: the program must be the driver itself, or a script that ends with exec"))
	}
	if err == nil {
		return nil
	}
	said, _ := os.ReadFile(log.Name())
	return fmt.Errorf("the suite cannot be run with %s: %w; it says:\n%s", cmd, err, said[max(0, len(said)-2000):])
}

// served reports whether a socket is still served long after its driver was killed.
func served(socket string) bool {
	deadline := time.After(harness.Patience)
	for {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		conn.Close()
		select {
		case <-deadline:
			return true
		case <-time.After(glance):
		}
	}
}

// known asks the driver who it is and what it can do.
func (k kind) known(socket string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), harness.Patience, fmt.Errorf("%s passed", harness.Patience))
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := answers(ctx, conn, ended); err != nil {
		return fmt.Errorf("it does not answer at %s: %w", socket, err)
	}
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return err
	}
	if info.GetName() != k.name {
		return fmt.Errorf("its name is %q, want %q as --drivername says", info.GetName(), k.name)
	}
	return k.attaches(ctx, conn)
}

// attaches checks that the driver can attach volumes if it was started with
// --enable-attach, and only then.
func (k kind) attaches(ctx context.Context, conn *grpc.ClientConn) error {
	can, err := csi.NewControllerClient(conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return err
	}
	has := slices.ContainsFunc(can.GetCapabilities(), func(c *csi.ControllerServiceCapability) bool {
		return c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
	})
	if has != k.attach {
		return fmt.Errorf("it has PUBLISH_UNPUBLISH_VOLUME: %v, want %v", has, k.attach)
	}
	return nil
}
