package e2e

import (
	"context"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// proxy passes the calls for a driver on and notes them.
type proxy struct {
	conn *grpc.ClientConn // to the driver

	mu    sync.Mutex
	calls []call
	heard chan struct{} // closed and replaced with every call
	stop  *cut          // of the next call that it is for; nil: none
}

// cut is where a call is held, between the caller and the driver.
type cut struct {
	name  string
	after bool // the driver has answered; the answer is lost
	// reached is closed when the call is held; it goes on when on is closed.
	reached, on chan struct{}
}

// hold holds the next call of a name until the returned cut's on is closed.
func (p *proxy) hold(name string, after bool) *cut {
	c := &cut{name: name, after: after, reached: make(chan struct{}), on: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = c
	return c
}

// held returns the cut that a call is to be held at, once.
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

// call is one call that a driver answered.
type call struct {
	name string // NodeStageVolume
	err  error
}

// frame is a message that is passed on as it came.
type frame struct{ data []byte }

type frames struct{}

func (frames) Name() string { return "frames" }

func (frames) Marshal(v any) ([]byte, error) { return v.(*frame).data, nil }

func (frames) Unmarshal(data []byte, v any) error {
	v.(*frame).data = slices.Clone(data)
	return nil
}

// newProxy serves at the socket of the path listen, for a driver at backend.
func newProxy(t *testing.T, listen, backend string) *proxy {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+backend, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 10 * time.Second, Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &proxy{conn: conn, heard: make(chan struct{})}
	serve(t, listen, grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(p.pass)))
	return p
}

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
	err := p.conn.Invoke(stream.Context(), method, &in, &out, grpc.ForceCodec(frames{}))
	if c := p.held(path.Base(method), true); c != nil {
		close(c.reached)
		<-c.on
		err = status.Error(codes.Unavailable, "the driver died")
	}
	p.note(call{path.Base(method), err})
	if err != nil {
		return err
	}
	return stream.SendMsg(&out)
}

func (p *proxy) note(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	close(p.heard)
	p.heard = make(chan struct{})
}

// count tells how often the driver was called by one of the names.
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

// await waits until the driver was called n times by the name.
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

// ready waits until the driver answers.
func (p *proxy) ready(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := csi.NewIdentityClient(p.conn)
	for {
		// A connection to the driver that was killed may end only now.
		_, err := client.Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("the driver does not answer: %v", err)
		}
	}
}

// volumes lists the ids of the volumes that the driver has.
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

// registration is a driver's registration socket as its registrar would serve it.
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
