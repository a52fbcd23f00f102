package csistrict

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Config configures a driver.
type Config struct {
	// Name is its CSI name, NodeID the node id in NodeGetInfo.
	Name, NodeID string
	// StateDir holds its state, the data of its volumes, the script and the
	// transcript; New makes it.
	StateDir string
	// Zones has the zone of each node that shares the storage, by node id; each node
	// has a socket of its own (ServeNode). With zones the driver has topology. If it is
	// empty, the only node is NodeID.
	Zones map[string]string
	// Without are abilities that the driver lacks whatever its script says, by
	// their CSI names.
	Without []string
	// Logger receives each call, at level debug, and errors of the driver itself;
	// nil discards them.
	Logger *slog.Logger
}

// Driver is a strict driver. Its methods may be called by many goroutines at once.
type Driver struct {
	cfg        Config
	log        *slog.Logger
	transcript *transcript
	calls      uint64 // guarded by mu

	mu    sync.Mutex
	judge judge
	conns *connections
	late  sync.WaitGroup
}

// New reads the driver's earlier state and writes into the transcript that it is up.
func New(c Config) (*Driver, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Join(c.StateDir, "volumes"), 0o700); err != nil {
		return nil, fmt.Errorf("strict driver: %w", err)
	}
	model, err := ReadModel(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("strict driver: %w", err)
	}
	script, err := c.readScript()
	if err != nil {
		return nil, fmt.Errorf("strict driver: %w", err)
	}
	t, err := openTranscript(transcriptPath(c.StateDir))
	if err != nil {
		return nil, fmt.Errorf("strict driver: %w", err)
	}
	now := time.Now()
	d := &Driver{cfg: c, log: c.Logger, transcript: t, conns: &connections{}, judge: judge{
		model: &model, script: script, told: script, nodeID: c.NodeID, zones: c.Zones, since: now, inFlight: map[string]*call{},
		open: map[string]string{}, cuts: map[string]bool{},
	}}
	return d, t.write(Event{Time: now, Event: EventUp, Text: c.Name})
}

// Serve answers calls at a socket until ctx ends; when it returns, late effects have happened.
func (d *Driver) Serve(ctx context.Context, socket string) error { return d.serve(ctx, socket, "") }

// ServeNode does the same on one of the nodes that share the storage.
func (d *Driver) ServeNode(ctx context.Context, socket, id string) error {
	return d.serve(ctx, socket, id)
}

func (d *Driver) serve(ctx context.Context, socket, id string) error {
	l, err := listen(ctx, socket)
	if err != nil {
		return fmt.Errorf("strict driver: %w", err)
	}
	at := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return d.intercept(ctx, id, req, info, handler)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(at), grpc.StatsHandler(d.conns), grpc.ForceServerCodecV2(rawCodec{}))
	csi.RegisterIdentityServer(s, &identity{driver: d})
	csi.RegisterControllerServer(s, &controller{driver: d})
	csi.RegisterGroupControllerServer(s, &groupController{driver: d})
	csi.RegisterNodeServer(s, &node{driver: d, id: id})
	csi.RegisterSnapshotMetadataServer(s, &metadata{driver: d})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	err = s.Serve(&conns{Listener: l, all: d.conns})
	d.late.Wait()
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// intercept judges a call that arrived on a node ("" for the socket of Serve),
// misbehaves if the script says so, and answers it.
func (d *Driver) intercept(ctx context.Context, node string, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	m, ok := req.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "request of type %T", req)
	}
	c := &call{
		ctx: ctx, node: node, name: filepath.Base(info.FullMethod), req: m, at: time.Now(),
		volume: volumeOf(m), path: pathOf(m), request: canonical(m), seen: look(m),
	}
	fault, busy, err := d.begin(c)
	if err != nil {
		return nil, err
	}
	if f, refused := c.refusal(); refused {
		return nil, d.end(c, status.Errorf(f.code, "%s: %s", f.rule, f.text), busy, false)
	}
	if busy {
		return nil, d.end(c, status.Error(codes.Aborted, "another call for the volume is at work"), busy, false)
	}
	resp, err := d.misbehave(c, fault, handler)
	err = d.end(c, err, false, fault.ID != "")
	if err == nil {
		d.noteTold(c.name)
	}
	return resp, err
}

// begin judges and records the call, and finds the fault for it.
func (d *Driver) begin(c *call) (fault Fault, busy bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	script, err := d.cfg.readScript()
	if err != nil {
		return Fault{}, false, status.Error(codes.Internal, err.Error())
	}
	d.judge.script = script
	d.calls++
	c.id = d.calls
	if c.name == "NodeGetCapabilities" {
		d.judge.model.Asked++
		c.asked = d.conns.asked(c.ctx)
	}
	d.judge.ephemeral(c)
	busy = d.judge.begin(c)
	keys := slices.Sorted(maps.Keys(secretsOf(c.req)))
	events := []Event{{Time: c.at, Event: EventBegin, ID: c.id, Call: c.name, Volume: c.volume, Request: []byte(c.request), SecretKeys: keys, Tokens: hasTokens(c.req)}}
	for _, f := range c.found {
		events = append(events, Event{Time: c.at, Event: EventBreach, ID: c.id, Call: c.name, Volume: c.volume, Rule: f.rule, Text: f.text})
	}
	if _, refused := c.refusal(); !refused && !busy {
		d.judge.accept(c)
		found := false
		if fault, found = d.judge.model.match(script, c, d.judge.model.Volumes[c.volume]); found {
			events = append(events, Event{Time: c.at, Event: EventFault, ID: c.id, Call: c.name, Volume: c.volume, Text: fault.ID})
		}
	}
	for _, e := range events {
		if err := d.transcript.write(e); err != nil {
			return Fault{}, busy, status.Error(codes.Internal, err.Error())
		}
	}
	return fault, busy, d.save()
}

// end records the answer and returns it.
func (d *Driver) end(c *call, answer error, busy, odd bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	code, now := status.Code(answer), time.Now()
	lost := c.ctx.Err() != nil
	if !busy {
		d.judge.end(c, code, !lost, odd, now)
	}
	e := Event{Time: now, Event: EventEnd, ID: c.id, Call: c.name, Volume: c.volume, Code: code.String(), Lost: lost}
	if answer != nil {
		e.Text = status.Convert(answer).Message()
	}
	d.log.Debug("answered", "call", c.name, "volume", c.volume, "code", e.Code, "text", e.Text, "took", now.Sub(c.at))
	if err := errors.Join(d.transcript.write(e), d.judge.model.save(d.cfg.StateDir)); err != nil {
		return noted(err)
	}
	return answer
}

// noted is an error of the driver itself.
func noted(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}

// save is called with mu held.
func (d *Driver) save() error { return noted(d.judge.model.save(d.cfg.StateDir)) }

// noteTold records that the CO got the driver's current abilities.
func (d *Driver) noteTold(name string) {
	if !strings.HasSuffix(name, "Capabilities") || name == "ValidateVolumeCapabilities" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.judge.told = d.judge.script
}

// script returns the one that is in force.
func (d *Driver) script() Script {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.judge.script
}

// volume returns a copy of a volume's state.
func (d *Driver) volume(id string) (Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.judge.model.Volumes[id]
	if !ok {
		return Volume{}, status.Errorf(codes.NotFound, "volume %s: there is none", id)
	}
	copied := *v
	copied.Targets, copied.Counted = maps.Clone(v.Targets), maps.Clone(v.Counted)
	return copied, nil
}

// update changes a volume's state.
func (d *Driver) update(id string, change func(*Volume)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.judge.model.Volumes[id]; ok {
		change(v)
	}
}

// ephemeral adds an inline volume at its first publication.
func (j *judge) ephemeral(c *call) {
	req, ok := c.req.(*csi.NodePublishVolumeRequest)
	if !ok || req.GetVolumeContext()[ephemeralKey] != "true" || req.GetVolumeId() == "" || j.model.Volumes[c.volume] != nil {
		return
	}
	j.model.Volumes[c.volume] = &Volume{ID: c.volume, Ephemeral: true, Tag: req.GetVolumeContext()["tag"]}
}

// look asks the kernel what is at the paths of a request.
func look(req proto.Message) (s seen) {
	dir := func(path string) bool {
		st, err := os.Lstat(path)
		return err == nil && st.IsDir()
	}
	if r, ok := req.(interface{ GetStagingTargetPath() string }); ok && r.GetStagingTargetPath() != "" {
		s.staging = dir(r.GetStagingTargetPath())
	}
	if r, ok := req.(interface{ GetTargetPath() string }); ok && r.GetTargetPath() != "" {
		s.parent = dir(filepath.Dir(r.GetTargetPath()))
		var st unix.Stat_t
		// A path that cannot be looked at, such as a dead mount, counts as present.
		s.target = !errors.Is(unix.Lstat(r.GetTargetPath(), &st), unix.ENOENT)
		s.unmounted = !isMount(r.GetTargetPath())
	}
	return s
}
