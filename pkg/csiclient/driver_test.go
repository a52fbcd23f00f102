package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Items: N-04, N-15, N-16, N-20, N-88, N-83.
func TestDialReadsWhatADriverCanDoOnce(t *testing.T) {
	f := newFake()
	f.caps = append(f.caps, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, 4, 99)
	f.controller = []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	n := connect(t, f)
	want := Info{
		Name: driverName, Endpoint: n.socket, Version: "v1", NodeID: "node-1",
		Topology: map[string]string{"zone": "z1"}, MaxVolumes: 16,
		Capabilities: []string{"4", "99", "EXPAND_VOLUME", "GET_VOLUME_STATS", "SINGLE_NODE_MULTI_WRITER", "STAGE_UNSTAGE_VOLUME", "VOLUME_MOUNT_GROUP"},
		Stage:        true, Expand: true, Stats: true, MountGroup: true, singleNodeMultiWriter: true, OldCondition: true,
		OnlineExpand: true, OfflineExpand: true, ControllerService: true, Attach: true, Topological: true,
		ControllerCapabilities: []string{"PUBLISH_UNPUBLISH_VOLUME"},
	}
	if diff := cmp.Diff(want, n.d.Info(), cmp.AllowUnexported(Info{})); diff != "" {
		t.Error(diff)
	}
	v := n.volume(state.Filesystem)
	must(t, n.d.Stage(t.Context(), v))
	must(t, publish(t.Context(), n.d, v, "pod-1"))
	for _, once := range []string{"GetPluginInfo", "GetPluginCapabilities", "Probe", "ControllerGetCapabilities", "NodeGetCapabilities", "NodeGetInfo"} {
		if f.calls(once) != 1 {
			t.Errorf("%s was called %d times", once, f.calls(once))
		}
	}
}

// Each way to expand is an ability of its own, and a driver may have no ability at all.
//
// Items: N-20, N-88.
func TestAbilitiesAreApart(t *testing.T) {
	const online, offline = csi.PluginCapability_VolumeExpansion_ONLINE, csi.PluginCapability_VolumeExpansion_OFFLINE
	for _, can := range [][]csi.PluginCapability_VolumeExpansion_Type{nil, {online}, {offline}, {online, offline}, {99}} {
		f := newFake()
		f.expansion, f.caps = can, nil
		i := connect(t, f).d.Info()
		if i.OnlineExpand != slices.Contains(can, online) || i.OfflineExpand != slices.Contains(can, offline) || i.Stage || i.Expand || i.Stats || len(i.Capabilities) > 0 {
			t.Errorf("%v: %+v", can, i)
		}
	}
}

// Items: N-17, N-18, N-19.
// Sidecars: SL-01.
func TestDialAsksWhetherTheDriverIsReady(t *testing.T) {
	for name, c := range map[string]struct {
		ready *wrapperspb.BoolValue
		err   error
		want  error // nil if the driver is ready
	}{
		"says nothing":        {},
		"ready":               {ready: wrapperspb.Bool(true)},
		"not ready":           {ready: wrapperspb.Bool(false), want: errNotReady},
		"has no Probe":        {err: status.Error(codes.Unimplemented, "no")},
		"FAILED_PRECONDITION": {err: status.Error(codes.FailedPrecondition, "no backend"), want: &state.CallError{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.ready = c.ready
			if c.err != nil {
				f.inject("Probe", c.err)
			}
			err := dialOnly(t, f, driverName)
			_, isCall := errors.AsType[*state.CallError](err)
			if ok := c.want == nil && err == nil || c.want == errNotReady && errors.Is(err, errNotReady) || c.err != nil && c.want != nil && isCall; !ok {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// dialOnly serves f, dials it, and closes it again.
func dialOnly(t *testing.T, f *fakeDriver, name state.DriverName) error {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	f.serve(t, socket)
	d, err := Dial(t.Context(), Config{Name: name, Endpoint: "unix://" + socket, Root: t.TempDir()})
	if err == nil {
		must(t, d.Close())
	}
	return err
}

// Items: N-12.
// Sidecars: SP-01.
func TestADriverOfAnotherNameIsRefused(t *testing.T) {
	if err := dialOnly(t, newFake(), "other.example.com"); !errors.Is(err, ErrName) {
		t.Errorf("got %v, want ErrName", err)
	}
}

// Items: N-89.
// Sidecars: SA-06.
func TestNodeInfoIsNeededOnlyByDriversThatAttach(t *testing.T) {
	f := newFake()
	f.nodeID = ""
	if err := dialOnly(t, f, driverName); err != nil {
		t.Errorf("a driver without NodeGetInfo: %v", err)
	}
	f = newFake()
	f.nodeID = ""
	f.controller = []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	if err := dialOnly(t, f, driverName); err == nil || !strings.Contains(err.Error(), "NodeGetInfo") {
		t.Errorf("a driver that attaches, without NodeGetInfo: %v", err)
	}
}

// Items: N-90, J11.
func TestAnEmptyNodeIDIsWrongOnlyWhereItIsNeeded(t *testing.T) {
	for attach, wrong := range map[bool]bool{false: false, true: true} {
		f := newFake()
		f.emptyNodeID = true
		f.controller = []csi.ControllerServiceCapability_RPC_Type{}
		if attach {
			f.controller = append(f.controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
		}
		if err := dialOnly(t, f, driverName); (err != nil) != wrong {
			t.Errorf("attach %v: %v", attach, err)
		}
	}
}

// In a cluster the driver's sidecars call its Controller service, and the node never does.
func TestTheControllerServiceOfAClusterIsNotAsked(t *testing.T) {
	f := newFake()
	f.nodeID, f.controller = "", []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	f.inject("ControllerGetCapabilities", status.Error(codes.Internal, "it was asked"))
	n := connect(t, f, func(c *Config) { c.NodeOnly = true })
	if i := n.d.Info(); !i.ControllerService || i.Attach {
		t.Errorf("info %+v", i)
	}
}

// Items: N-13.
func TestAControllerThatIsElsewhereIsNone(t *testing.T) {
	f := newFake()
	f.controller = []csi.ControllerServiceCapability_RPC_Type{}
	f.inject("ControllerGetCapabilities", status.Error(codes.Unimplemented, "unknown service csi.v1.Controller"))
	n := connect(t, f)
	if i := n.d.Info(); i.ControllerService || i.Attach {
		t.Errorf("info %+v", i)
	}
}

// Items: J07, N-93.
// Sidecars: SP-01.
func TestEveryFailureWhileAskingFailsDial(t *testing.T) {
	for _, method := range []string{"GetPluginInfo", "GetPluginCapabilities", "Probe", "ControllerGetCapabilities", "NodeGetCapabilities", "NodeGetInfo"} {
		f := newFake()
		f.controller = []csi.ControllerServiceCapability_RPC_Type{}
		f.inject(method, status.Error(codes.Internal, "boom"))
		err := dialOnly(t, f, driverName)
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Call != method || e.Code != "Internal" {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestDialSaysAtOnceThatNobodyListens(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.Listen("unix", stale)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
	for _, endpoint := range []string{stale, filepath.Join(dir, "none.sock")} {
		_, err := Dial(t.Context(), Config{Name: driverName, Endpoint: endpoint, Root: dir})
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Code != "Unavailable" || e.Outcome != state.Uncertain {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// Items: N-01.
func TestOnlyUnixSocketsAreEndpoints(t *testing.T) {
	if _, err := Dial(t.Context(), Config{Endpoint: "tcp://127.0.0.1:1", Root: t.TempDir()}); err == nil {
		t.Error("dialled tcp")
	}
	if _, err := Dial(t.Context(), Config{Endpoint: "/x.sock", Root: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("dialled without a root directory")
	}
}

func TestEndpointsMayBeLongerThanASocketAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	must(t, os.Mkdir(dir, 0o700))
	f := newFake()
	f.serve(t, filepath.Join(dir, "csi.sock"))
	d, err := Dial(t.Context(), Config{Name: driverName, Endpoint: filepath.Join(dir, "csi.sock"), Root: t.TempDir()})
	must(t, err)
	must(t, d.Close())
}

func TestServersSeeLocalhostAsTheAuthority(t *testing.T) {
	f := newFake()
	var got []string
	f.fault = func(ctx context.Context, _ string, _ any) error {
		md, _ := metadata.FromIncomingContext(ctx)
		got = append(got, md.Get(":authority")...)
		return nil
	}
	must(t, dialOnly(t, f, driverName))
	if slices.ContainsFunc(got, func(a string) bool { return a != "localhost" }) || len(got) == 0 {
		t.Errorf("authorities %q", got)
	}
}

func TestAGarbageServerIsAnErrorAndNoPanic(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "SSH-2.0-OpenSSH\r\n\x00\xff")
			c.Close()
		}
	})
	_, err = Dial(t.Context(), Config{Name: driverName, Endpoint: socket, Root: t.TempDir(), Deadlines: Deadlines{Info: patience}})
	if err == nil {
		t.Error("dialled garbage")
	}
	must(t, l.Close())
	serving.Wait()
}

// An HTTP server that does not speak gRPC: the client invents the status.
func TestAnAnswerThatIsNoneIsUncertain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.Listen("unix", socket)
	must(t, err)
	server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	})}
	server.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	_, err = Dial(t.Context(), Config{Name: driverName, Endpoint: socket, Root: t.TempDir()})
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Code != "Unknown" || e.Outcome != state.Uncertain {
		t.Errorf("got %+v", err)
	}
	must(t, server.Close())
	serving.Wait()
}

func TestCallsOverConnAreBoundedToo(t *testing.T) {
	n := connect(t, newFake())
	bounded := false
	n.f.mu.Lock()
	n.f.fault = func(ctx context.Context, _ string, _ any) error { _, bounded = ctx.Deadline(); return nil }
	n.f.mu.Unlock()
	_, err := csi.NewIdentityClient(n.d.Conn()).Probe(context.Background(), &csi.ProbeRequest{})
	must(t, err)
	if !bounded {
		t.Error("a call without a deadline was made without one")
	}
}

// Items: N-91.
func TestANegativeNumberOfVolumesSaysNothing(t *testing.T) {
	f := newFake()
	f.maxVolumes = -1
	if got := connect(t, f).d.Info().MaxVolumes; got != 0 {
		t.Errorf("max volumes %d", got)
	}
}

func TestALoggedRequestIsBounded(t *testing.T) {
	long := map[string]string{"k": strings.Repeat("x", 4000)}
	text := sanitized{&csi.NodeStageVolumeRequest{VolumeContext: long, PublishContext: long}}.String()
	if len(text) > maxLogged+100 || !strings.HasSuffix(text, "(cut)") {
		t.Errorf("%d bytes", len(text))
	}
}

// With a pause of an hour between attempts, only an event of the watch can end it. gRPC
// says that it waits a moment before it can be woken, so it may miss one event; that is why
// the pause is a second at most outside of this test.
// Items: N-05.
func TestASocketsReturnCutsThePauseShort(t *testing.T) {
	n := connect(t, newFake(), func(c *Config) { c.redial = time.Hour })
	n.f.die()
	_ = n.news()
	newFake().serve(t, n.socket)
	for i := 0; ; i++ {
		select {
		case err := <-n.change:
			must(t, err)
			return
		case <-time.After(10 * time.Millisecond):
			must(t, os.Rename(n.socket, n.socket+".away"))
			must(t, os.Rename(n.socket+".away", n.socket))
		}
		if i > 1000 {
			t.Fatal("events do not cut the pause short")
		}
	}
}

func TestAConnectionThatWasMadeMeanwhileWakesAtOnce(t *testing.T) {
	f := newFake()
	s := &socket{path: filepath.Join(t.TempDir(), "csi.sock")}
	f.serve(t, s.path)
	woken := 0
	s.wakeAfter(0, func() { woken++ })
	for range 2 {
		c, err := s.dial(t.Context(), "")
		must(t, err)
		must(t, c.Close())
	}
	if woken != 1 {
		t.Errorf("woken %d times by two connections, want once", woken)
	}
	s.wakeAfter(1, func() { woken++ })
	if woken != 2 {
		t.Error("not woken by a connection made before")
	}
}

// Sidecars: SL-02.
func TestAHungDriverIsGivenUpByDeadline(t *testing.T) {
	f := newFake()
	f.fault = func(ctx context.Context, _ string, _ any) error { <-ctx.Done(); return ctx.Err() }
	socket := filepath.Join(t.TempDir(), "csi.sock")
	f.serve(t, socket)
	_, err := Dial(t.Context(), Config{Name: driverName, Endpoint: socket, Root: t.TempDir(), Deadlines: Deadlines{Info: 50 * time.Millisecond}})
	if e, ok := errors.AsType[*state.CallError](err); !ok || e.Code != "DeadlineExceeded" {
		t.Errorf("got %v", err)
	}
}

// Items: N-05, N-31.
func TestADriverThatDiesAndReturnsIsAskedAnew(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	n.f.die()
	if err := n.news(); err == nil {
		t.Fatal("its death is told as good news")
	}
	if err := n.d.Stage(t.Context(), v); outcome(t, err) != state.Uncertain {
		t.Errorf("a call while it is away: %v", err)
	}
	again := newFake()
	again.caps = nil // it returns with fewer capabilities, as after a downgrade
	again.serve(t, n.socket)
	if err := n.news(); err != nil {
		t.Fatalf("its return is told as %v", err)
	}
	if i := n.d.Info(); i.Stage || len(i.Capabilities) > 0 {
		t.Errorf("info is the old one: %+v", i)
	}
	v.Needs.Stage = false
	must(t, publish(t.Context(), n.d, v, "pod-1"))
}

func TestAConnectionIsLostOnlyOnceGRPCHasSettled(t *testing.T) {
	for _, c := range []struct {
		state          connectivity.State
		known, settled bool
		away           bool
	}{
		{connectivity.Connecting, true, false, false}, // Dial returned before gRPC reported the connection
		{connectivity.Connecting, false, false, true}, // the connection broke while Dial asked
		{connectivity.Connecting, true, true, true},
		{connectivity.Ready, true, true, false},
		{connectivity.Ready, false, true, true},
		{connectivity.Idle, true, true, true},
		{connectivity.TransientFailure, true, true, true},
	} {
		if got := away(c.state, c.known, c.settled); got != c.away {
			t.Errorf("%s, known %t, settled %t: away is %t", c.state, c.known, c.settled, got)
		}
	}
}

func TestAProcessThatTakesOverTheEndpointGetsNoRequest(t *testing.T) {
	n := connect(t, newFake())
	v := n.volume(state.Filesystem)
	n.f.die()
	if err := n.news(); err == nil {
		t.Fatal("its death is told as good news")
	}
	thief := newFake()
	thief.name = "thief.example.com"
	thief.serve(t, n.socket)
	for err := error(nil); !errors.Is(err, ErrName); {
		if err = n.news(); err == nil {
			t.Fatal("the thief is taken for the driver")
		}
	}
	if err := n.d.Stage(t.Context(), v); err == nil {
		t.Error("the thief was called with success")
	}
	if _, err := csi.NewControllerClient(n.d.Conn()).CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "x"}); status.Code(err) != codes.Unavailable {
		t.Errorf("over Conn: %v", err)
	}
	for _, m := range thief.seen() {
		if m != "GetPluginInfo" {
			t.Errorf("the thief was sent %s", m)
		}
	}
}

func TestAReasonThatLastsIsToldOnce(t *testing.T) {
	n := connect(t, newFake())
	n.f.die()
	_ = n.news()
	thief := newFake()
	thief.name = "thief.example.com"
	asked := make(chan struct{})
	thief.fault = func(ctx context.Context, _ string, _ any) error {
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
		}
		return nil
	}
	thief.serve(t, n.socket)
	for range 3 {
		<-asked
	}
	if err := n.news(); !errors.Is(err, ErrName) {
		t.Errorf("told %v, want ErrName", err)
	}
	if len(n.change) > 0 {
		t.Errorf("told again: %v", <-n.change)
	}
}

// A process at the endpoint gets no call before it has said its name, not even the call
// that its connection was made for.
func TestNoCallIsMadeBeforeTheDriverSaidWhoItIs(t *testing.T) {
	n := connect(t, newFake())
	n.f.die()
	_ = n.news()
	again := newFake()
	asked, answer := make(chan struct{}), make(chan struct{})
	again.fault = func(_ context.Context, method string, _ any) error {
		if method == "GetPluginInfo" {
			close(asked)
			<-answer
		}
		return nil
	}
	again.serve(t, n.socket)
	<-asked
	err := n.d.Stage(t.Context(), n.volume(state.Filesystem))
	if e, _ := errors.AsType[*state.CallError](err); outcome(t, err) != state.Uncertain || e.Code != "Unavailable" || again.calls(nodeStage) > 0 {
		t.Errorf("%v after %d calls", err, again.calls(nodeStage))
	}
	close(answer)
	must(t, n.news())
	must(t, n.d.Stage(t.Context(), n.volume(state.Filesystem)))
}

func TestTheSocketsDirectoryMayBeMadeAnew(t *testing.T) {
	n := connect(t, newFake())
	dir := filepath.Dir(n.socket)
	n.f.die()
	_ = n.news()
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o700))
	second := newFake()
	second.serve(t, n.socket)
	must(t, n.news())
	third := newFake()
	third.serve(t, n.socket) // the second lives on: only the watch sees the new socket
	_ = n.news()
	must(t, n.news())
	must(t, n.d.Stage(t.Context(), n.volume(state.Filesystem)))
	if third.calls(nodeStage) != 1 {
		t.Error("the call went elsewhere")
	}
}

// Items: N-19.
// Sidecars: SL-01.
func TestADriverThatIsNotReadyAfterItsReturnIsAskedUntilItIs(t *testing.T) {
	n := connect(t, newFake())
	n.f.die()
	_ = n.news()
	again := newFake()
	var once sync.Once
	again.fault = func(_ context.Context, method string, _ any) (err error) {
		if method == "Probe" {
			once.Do(func() { err = status.Error(codes.FailedPrecondition, "still looking for the backend") })
		}
		return err
	}
	again.serve(t, n.socket)
	for err := error(errors.New("away")); err != nil; {
		err = n.news()
	}
	if again.calls("Probe") != 2 {
		t.Errorf("probed %d times, want 2", again.calls("Probe"))
	}
}

// Faults: A069.
func TestAReplacedSocketIsConnectedToWhileTheOldProcessLives(t *testing.T) {
	n := connect(t, newFake())
	again := newFake()
	again.serve(t, n.socket) // removes the old socket; the old process lives on
	if err := n.news(); err == nil {
		t.Fatal("no loss was told")
	}
	if err := n.news(); err != nil {
		t.Fatalf("the new process: %v", err)
	}
	must(t, n.d.Stage(t.Context(), n.volume(state.Filesystem)))
	if again.calls(nodeStage) != 1 || n.f.calls(nodeStage) != 0 {
		t.Errorf("the new process has %d calls, the old one %d", again.calls(nodeStage), n.f.calls(nodeStage))
	}
}

func TestKickKeepsAGoodConnection(t *testing.T) {
	n := connect(t, newFake())
	n.d.kick()
	must(t, n.d.Stage(t.Context(), n.volume(state.Filesystem)))
	if made, known := n.d.sock.connections(); made != 1 || !known {
		t.Errorf("%d connections", made)
	}
}

func TestNothingIsToldAfterClose(t *testing.T) {
	f := newFake()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	f.serve(t, socket)
	var mu sync.Mutex
	closed, late := false, 0
	d, err := Dial(t.Context(), Config{Name: driverName, Endpoint: socket, Root: t.TempDir(), OnChange: func(Info, error) {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			late++
		}
	}})
	must(t, err)
	must(t, d.Close())
	mu.Lock()
	closed = true
	mu.Unlock()
	f.die()
	mu.Lock()
	defer mu.Unlock()
	if late > 0 {
		t.Errorf("told %d times after Close", late)
	}
}

func TestCallsInFlightFailAsUncertainWhenTheDriverDies(t *testing.T) {
	n := connect(t, newFake())
	begun := make(chan struct{})
	n.f.mu.Lock()
	n.f.fault = func(ctx context.Context, _ string, _ any) error { close(begun); <-ctx.Done(); return ctx.Err() }
	n.f.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- n.d.Stage(context.Background(), n.volume(state.Filesystem)) }()
	<-begun
	n.f.die()
	if err := <-ended; outcome(t, err) != state.Uncertain {
		t.Errorf("got %v", err)
	}
}

// The canaries may be in the requests only.
// Items: N-35, N-37, N-38.
func TestSecretsAreInNoLogAndNoError(t *testing.T) {
	const canary = "CANARY"
	n := connect(t, newFake(), func(c *Config) {
		c.Secrets = secretFunc(func(ref state.SecretRef) (map[string]string, error) {
			return map[string]string{"password": canary + "-secret-" + ref.Name}, nil
		})
	})
	v := n.volume(state.Filesystem)
	v.Spec.StageRef, v.Spec.PublishRef, v.Spec.ExpandRef = ref("stage"), ref("publish"), ref("expand")
	v.Spec.MountFlags = []string{"username=web", "password=" + canary + "-flag"}
	v.Spec.Context = map[string]string{"adminPassword": canary + "-context", "pool": "fast"}
	m := v.Mounts["pod-1"]
	m.Context = map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": `{"vault":{"token":"` + canary + `-token","expirationTimestamp":"2026"}}`}
	v.Mounts["pod-1"] = m
	n.f.mu.Lock()
	n.f.fault = func(_ context.Context, method string, req any) error {
		if strings.HasPrefix(method, "NodeUn") {
			return nil
		}
		// The driver quotes all that it was given; the line break would forge a log line.
		return status.Errorf(codes.Internal, "mount -o %v failed:\nlevel=ERROR %v", secretsIn(req), strings.Repeat("x", 5000))
	}
	n.f.mu.Unlock()
	errs := []error{n.d.Stage(t.Context(), v), publish(t.Context(), n.d, v, "pod-1")}
	_, err := n.d.Expand(t.Context(), v, "pod-1", 1)
	errs = append(errs, err)
	must(t, n.d.Unpublish(t.Context(), v, "pod-1"))
	v.Spec.Context["pool"] = strings.Repeat("y", 5000) // over the limit: not sent
	errs = append(errs, n.d.Stage(t.Context(), v))
	for i, err := range errs {
		if err == nil || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*maxMessage {
			t.Errorf("error %d has a secret, a line break or no end: %v", i, err)
		}
	}
	log := n.log.String()
	if strings.Contains(log, canary) {
		t.Errorf("the log has a secret:\n%s", log)
	}
	for _, want := range []string{"call=NodeStageVolume", "call=NodePublishVolume", "call=NodeExpandVolume", stripped, "pool", `driver=` + driverName, "code=Internal"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// secretsIn returns everything in a request that is secret.
func secretsIn(req any) string {
	var all []string
	if r, ok := req.(interface{ GetSecrets() map[string]string }); ok {
		for _, s := range r.GetSecrets() {
			all = append(all, s)
		}
	}
	if r, ok := req.(interface{ GetVolumeContext() map[string]string }); ok {
		for _, s := range r.GetVolumeContext() {
			all = append(all, s)
		}
		if strings.Contains(strings.Join(all, " "), "-token") {
			all = append(all, "CANARY-token", "CANARY-flag") // a token taken out of its JSON, and the value of a mount flag
		}
	}
	return strings.Join(all, ",")
}

func TestOneLineACall(t *testing.T) {
	n := connect(t, newFake())
	before := strings.Count(n.log.String(), "\n")
	must(t, n.d.Stage(t.Context(), n.volume(state.Filesystem)))
	lines := strings.Split(strings.TrimSpace(n.log.String()), "\n")[before:]
	if len(lines) != 1 || !strings.Contains(lines[0], "level=DEBUG") || !strings.Contains(lines[0], "volume=fake.example.com^vol/../1") {
		t.Errorf("lines %q", lines)
	}
}

// Items: O06.
func TestCallsAreMeasuredByDriverMethodAndCode(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	must(t, err)
	if _, err := NewMetrics(r); err == nil {
		t.Error("registered twice")
	}
	n := connect(t, newFake(), func(c *Config) { c.Metrics = m })
	must(t, n.d.Stage(t.Context(), n.volume(state.Filesystem)))
	migrated := n.volume(state.Filesystem)
	migrated.Spec.Migrated = true
	must(t, n.d.Stage(t.Context(), migrated))
	n.f.inject(nodeStage, status.Error(codes.Aborted, "pending"))
	if err := n.d.Stage(t.Context(), n.volume(state.Filesystem)); err == nil {
		t.Error("no error")
	}
	for code := codes.Code(100); code < 103; code++ { // codes that gRPC does not have share a series
		n.f.inject(nodeStage, status.Error(code, "hostile"))
		if err := n.d.Stage(t.Context(), n.volume(state.Filesystem)); err == nil {
			t.Error("no error")
		}
	}
	families, err := r.Gather()
	must(t, err)
	got := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			got[key] = m.GetHistogram().GetSampleCount()
			if b := m.GetHistogram().GetBucket(); b[0].GetUpperBound() != 1e-4 || b[len(b)-1].GetUpperBound() != 120 {
				t.Errorf("buckets from %v to %v", b[0].GetUpperBound(), b[len(b)-1].GetUpperBound())
			}
		}
	}
	for _, want := range []string{
		"OK method_name=/csi.v1.Node/NodeStageVolume migrated=false", "Aborted method_name=/csi.v1.Node/NodeStageVolume migrated=false",
		"OK method_name=/csi.v1.Node/NodeStageVolume migrated=true", // of an in-tree source
		// What Dial asks of a driver, and the answer of a service that the driver lacks.
		"OK method_name=/csi.v1.Identity/GetPluginInfo migrated=false", "OK method_name=/csi.v1.Node/NodeGetCapabilities migrated=false",
	} {
		key := "csi_operations_seconds driver_name=" + driverName + " grpc_status_code=" + want
		if got[key] != 1 {
			t.Errorf("%s: %d, want 1; all: %v", key, got[key], got)
		}
	}
	key := "csi_operations_seconds driver_name=" + driverName + " grpc_status_code=Unknown method_name=/csi.v1.Node/NodeStageVolume migrated=false"
	if got[key] != 3 {
		t.Errorf("%s: %d, want 3; all: %v", key, got[key], got)
	}
}

func TestAnUnknownCodeHarmsNothing(t *testing.T) {
	n := connect(t, newFake())
	n.f.inject(nodeStage, status.Error(codes.Code(77), "from the future"))
	err := n.d.Stage(t.Context(), n.volume(state.Filesystem))
	if e, _ := errors.AsType[*state.CallError](err); outcome(t, err) != state.Uncertain || e.Code != "Code(77)" {
		t.Errorf("got %v", err)
	}
}

func TestWhetherTheDriverAnsweredIsKnown(t *testing.T) {
	n := connect(t, newFake())
	n.f.inject(nodeStage, status.Error(codes.Internal, "from the driver"))
	err := n.d.Stage(t.Context(), n.volume(state.Filesystem))
	if outcome(t, err) != state.Failed {
		t.Errorf("the driver's INTERNAL: %v", err)
	}
	if s, ok := status.FromError(err); !ok || s.Code() != codes.Internal {
		t.Errorf("the status is lost: %v", err)
	}
}

func TestManyDriversCallsRunAtOnce(t *testing.T) {
	n := connect(t, newFake())
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			mode := []state.Mode{state.Filesystem, state.Block}[i%2]
			v := n.volume(mode)
			v.Spec.Handle = fmt.Sprint("vol-", i)
			v.Spec.StagePath = n.layout.StagePath(mode, driverName, v.Spec.Handle, v.Spec.Handle)
			m := v.Mounts["pod-1"]
			m.Target = n.layout.Target(mode, "pod-1", v.Spec.Handle) // all below the directories of one pod
			if mode == state.Block {
				m.DevicePath = n.layout.DevicePath("pod-1", v.Spec.Handle)
			}
			v.Mounts["pod-1"] = m
			for range 5 {
				for _, err := range []error{
					n.d.Stage(context.Background(), v), publish(context.Background(), n.d, v, "pod-1"),
					n.d.Unpublish(context.Background(), v, "pod-1"), n.d.Unstage(context.Background(), v),
				} {
					if err != nil {
						t.Errorf("volume %d: %v", i, err)
					}
				}
			}
		})
	}
	all.Wait()
	if left := n.tree(); !slices.Equal(left, []string{"plugins", "pods"}) {
		t.Errorf("left are %q", left)
	}
}
