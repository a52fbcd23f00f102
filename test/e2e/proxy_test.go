package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// proxy passes on the calls for a driver and notes them. Each connection to the proxy has
// its own connection to the driver, as if there were no proxy.
type proxy struct {
	backend string
	// alone: the proxy hides that the driver makes group snapshots.
	alone bool
	conn  *grpc.ClientConn // the test's own connection to the driver

	mu    sync.Mutex
	conns map[*grpc.ClientConn]struct{}
	calls []call
	heard chan struct{} // closed and replaced at every call
	stop  *cut          // holds the next call that matches; nil holds none
}

// cut is the point at which a call is held: before or after the driver's answer.
type cut struct {
	name  string
	after bool // the driver has answered, and the caller gets an error
	// reached is closed when the call is held. The call goes on when on is closed.
	reached, on chan struct{}
}

// hold holds the next call with this name until the caller closes the returned cut's on.
func (p *proxy) hold(name string, after bool) *cut {
	c := &cut{name: name, after: after, reached: make(chan struct{}), on: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = c
	return c
}

// held returns the cut if it is for this call, and forgets it.
func (p *proxy) held(name string, after bool) *cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.stop
	if c == nil || c.name != name || c.after != after {
		return nil
	}
	p.stop = nil
	return c
}

// call is a call that a driver answered.
type call struct {
	name string // such as NodeStageVolume
	err  error
}

// frame is a message that the proxy passes on unchanged.
type frame struct{ data []byte }

type frames struct{}

func (frames) Name() string { return "frames" }

func (frames) Marshal(v any) ([]byte, error) { return v.(*frame).data, nil }

func (frames) Unmarshal(data []byte, v any) error {
	v.(*frame).data = slices.Clone(data)
	return nil
}

// newProxy serves a proxy at the socket listen, for the driver at the socket backend.
func newProxy(t *testing.T, listen, backend string, alone bool) *proxy {
	t.Helper()
	p := &proxy{backend: backend, alone: alone, heard: make(chan struct{}), conns: map[*grpc.ClientConn]struct{}{}}
	p.conn = p.dial()
	t.Cleanup(func() { p.hangUp(p.conn) })
	serve(t, listen, grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(p.pass), grpc.StatsHandler(p)))
	return p
}

// dial makes a connection to the driver.
func (p *proxy) dial() *grpc.ClientConn {
	conn, err := dial(p.backend)
	if err != nil {
		panic(err) // the path is invalid
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = struct{}{}
	return conn
}

func (p *proxy) hangUp(conn *grpc.ClientConn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}))
}

// upstream is the context key of a connection's own connection to the driver.
type upstream struct{}

// TagConn implements stats.Handler.
func (p *proxy) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, upstream{}, p.dial())
}

// HandleConn implements stats.Handler.
func (p *proxy) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		p.hangUp(ctx.Value(upstream{}).(*grpc.ClientConn))
	}
}

// TagRPC implements stats.Handler.
func (p *proxy) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (p *proxy) HandleRPC(context.Context, stats.RPCStats) {}

// serve runs s on a unix socket until the test ends.
func serve(t *testing.T, socket string, s *grpc.Server) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
}

func (p *proxy) pass(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var in, out frame
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	if c := p.held(path.Base(method), false); c != nil {
		close(c.reached)
		<-c.on
	}
	conn := stream.Context().Value(upstream{}).(*grpc.ClientConn)
	if strings.Contains(method, ".SnapshotMetadata/") {
		return p.passStream(stream, method, &in)
	}
	err := conn.Invoke(stream.Context(), method, &in, &out, grpc.ForceCodec(frames{}))
	if c := p.held(path.Base(method), true); c != nil {
		close(c.reached)
		<-c.on
		err = status.Error(codes.Unavailable, "the driver died")
	}
	p.note(call{path.Base(method), err})
	if err == nil && p.alone && method == csi.Identity_GetPluginCapabilities_FullMethodName {
		out.data, err = withoutGroups(out.data)
	}
	if err != nil {
		return err
	}
	return stream.SendMsg(&out)
}

// withoutGroups removes the GroupController service from an answer to
// GetPluginCapabilities.
func withoutGroups(answer []byte) ([]byte, error) {
	var resp csi.GetPluginCapabilitiesResponse
	if err := proto.Unmarshal(answer, &resp); err != nil {
		return nil, err
	}
	resp.Capabilities = slices.DeleteFunc(resp.GetCapabilities(), func(c *csi.PluginCapability) bool {
		return c.GetService().GetType() == csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE
	})
	return proto.Marshal(&resp)
}

// passStream passes on a call with a streamed answer. If the call is to be held after the
// answer, the stream breaks after its second message, or instead of its end if it has only
// one.
func (p *proxy) passStream(to grpc.ServerStream, method string, in *frame) error {
	conn := to.Context().Value(upstream{}).(*grpc.ClientConn)
	from, err := conn.NewStream(to.Context(), &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodec(frames{}))
	if err == nil {
		err = errors.Join(from.SendMsg(in), from.CloseSend())
	}
	for n := 0; err == nil; n++ {
		var out frame
		if err = from.RecvMsg(&out); err == nil {
			err = to.SendMsg(&out)
		}
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			continue
		}
		if c := p.held(path.Base(method), true); c != nil {
			close(c.reached)
			<-c.on
			err = status.Error(codes.Unavailable, "the driver died")
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	p.note(call{path.Base(method), err})
	return err
}

func (p *proxy) note(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	close(p.heard)
	p.heard = make(chan struct{})
}

// count returns how often the driver answered calls with these names.
func (p *proxy) count(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.countLocked(names)
}

func (p *proxy) countLocked(names []string) (n int) {
	for _, c := range p.calls {
		if slices.Contains(names, c.name) {
			n++
		}
	}
	return n
}

// await waits until the driver has answered n calls with this name.
func (p *proxy) await(ctx context.Context, n int, name string) error {
	for {
		p.mu.Lock()
		have, heard := p.countLocked([]string{name}), p.heard
		p.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return fmt.Errorf("wait for call %d of %s: %w", n, name, context.Cause(ctx))
		}
	}
}

// ready waits until the driver, which runs as proc, answers.
func (p *proxy) ready(t *testing.T, proc *harness.Process) {
	t.Helper()
	p.mu.Lock()
	for conn := range p.conns {
		conn.ResetConnectBackoff()
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(t.Context(), harness.Patience, fmt.Errorf("%s passed", harness.Patience))
	defer cancel()
	if err := answers(ctx, p.conn, proc.Done()); err != nil {
		t.Fatalf("driver %s does not answer: %v; it says:\n%s", proc, err, proc.Tail())
	}
}

// answers waits until the driver at the end of conn answers. ended is closed when the
// driver's process ends.
func answers(ctx context.Context, conn *grpc.ClientConn, ended <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ended:
			cancel(errors.New("its process has ended"))
		case <-ctx.Done():
		}
	}()
	client := csi.NewIdentityClient(conn)
	for {
		// The connection to the killed driver may break only now.
		_, err := client.Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case status.Code(err) != codes.Unavailable:
			return err
		}
	}
}

// volumes returns the ids of the driver's volumes.
func (p *proxy) volumes(t *testing.T) (ids []string) {
	t.Helper()
	list, err := csi.NewControllerClient(p.conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		t.Fatalf("list the driver's volumes: %v", err)
	}
	for _, e := range list.GetEntries() {
		ids = append(ids, e.GetVolume().GetVolumeId())
	}
	return ids
}

// registration serves a driver's registration socket as a registrar does.
type registration struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
}

func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return r.info, nil
}

func (r registration) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}

// register serves a registration socket for a driver in the directory dir.
func register(t *testing.T, dir, name, endpoint string) {
	t.Helper()
	s := grpc.NewServer()
	registerapi.RegisterRegistrationServer(s, registration{info: &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"},
	}})
	serve(t, filepath.Join(dir, name+"-reg.sock"), s)
}
