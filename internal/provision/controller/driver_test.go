package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// backend is a storage backend with its driver's services, in memory and strict: it keeps volumes by name, refuses
// what CSI forbids, and notes each of the caller's violations in breaches.
type backend struct {
	name     state.DriverName
	services []csi.PluginCapability_Service_Type
	growth   []csi.PluginCapability_VolumeExpansion_Type
	rpcs     []csi.ControllerServiceCapability_RPC_Type
	nodeGrow bool
	// secret, if set, must come with every call that takes secrets.
	secret map[string]string
	// secrets has the ones of calls that come with another.
	secrets map[string]map[string]string
	// fault, if set, is called before each changing call of the Controller service, with the call's name.
	fault func(call string, req proto.Message) fault
	// answer, if set, may spoil the volume that CreateVolume returns.
	answer func(*csi.Volume)
	// padding makes each publish_context longer.
	padding string
	// blocks returns the answer to a request of SnapshotMetadata: messages, errors, and channels to wait for; if nil,
	// the service is missing.
	blocks func(req proto.Message) []any
	// nodeExpansion is the answer of ControllerExpandVolume.
	nodeExpansion bool

	mu       sync.Mutex // guards the rest
	volumes  map[string]*stored
	cuts     map[string]*csi.Snapshot            // by name
	grouped  map[string]*csi.VolumeGroupSnapshot // by name
	room     *csi.GetCapacityResponse            // nil fails GetCapacity
	looks    int                                 // how many calls a snapshot takes until it is ready
	next     int
	busy     map[string]string
	asked    []string
	log      []string
	breaches []string
	inFlight int
	most     int
}

type stored struct {
	handle string
	req    *csi.CreateVolumeRequest
	bytes  int64
	nodes  map[string]bool
	has    map[string]string // mutable_parameters
}

// fault is how a call goes wrong.
type fault struct {
	// before fails the call without effect, after fails it with its effect made.
	before, after error
	// wait, if set, delays the call until it is closed or the caller gives up.
	wait <-chan struct{}
}

func newBackend() *backend {
	return &backend{
		name: "strict.example.com",
		services: []csi.PluginCapability_Service_Type{
			csi.PluginCapability_Service_CONTROLLER_SERVICE,
			csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		},
		growth: []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_ONLINE},
		rpcs: []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
			csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
			csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		},
		nodeGrow: true,
		volumes:  map[string]*stored{}, busy: map[string]string{}, cuts: map[string]*csi.Snapshot{},
		grouped: map[string]*csi.VolumeGroupSnapshot{},
	}
}

func (b *backend) driver() Driver {
	return Driver{Name: b.name, Conn: b, NodeID: "node-1", Topology: map[string]string{"zone": "a"}}
}

// Invoke serves one call, as a connection would. It implements grpc.ClientConnInterface.
func (b *backend) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	call := method[strings.LastIndex(method, "/")+1:]
	var resp proto.Message
	var err error
	switch req := args.(type) {
	case *csi.GetPluginCapabilitiesRequest:
		resp, err = b.question(ctx, call, b.pluginCapabilities())
	case *csi.NodeGetCapabilitiesRequest:
		resp, err = b.question(ctx, call, b.nodeCapabilities())
	case *csi.ControllerGetCapabilitiesRequest:
		resp, err = b.question(ctx, call, b.controllerCapabilities())
	case *csi.CreateVolumeRequest:
		resp, err = b.serve(ctx, call, req, req.GetName(), func() (proto.Message, error) { return b.create(req) })
	case *csi.DeleteVolumeRequest:
		resp, err = b.serve(ctx, call, req, req.GetVolumeId(), func() (proto.Message, error) { return b.remove(req) })
	case *csi.ControllerExpandVolumeRequest:
		resp, err = b.serve(ctx, call, req, req.GetVolumeId(), func() (proto.Message, error) { return b.grow(req) })
	case *csi.ControllerModifyVolumeRequest:
		resp, err = b.serve(ctx, call, req, req.GetVolumeId(), func() (proto.Message, error) { return b.modify(req) })
	case *csi.ControllerPublishVolumeRequest:
		resp, err = b.serve(ctx, call, req, req.GetVolumeId(), func() (proto.Message, error) { return b.publish(req) })
	case *csi.ControllerUnpublishVolumeRequest:
		resp, err = b.serve(ctx, call, req, req.GetVolumeId(), func() (proto.Message, error) { return b.unpublish(req) })
	case *csi.GetCapacityRequest:
		if b.room == nil {
			err = status.Error(codes.Internal, "no answer")
		} else {
			resp = b.room
			b.set(func() {
				b.asked = append(b.asked, call+" "+req.GetAccessibleTopology().GetSegments()["zone"]+req.GetParameters()["kind"])
			})
		}
	case *csi.ControllerGetVolumeHealthRequest:
		resp, err = b.serve(ctx, call, req, req.GetVolumeId(), func() (proto.Message, error) {
			return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{
				VolumeId: req.GetVolumeId(), HealthStatuses: []*csi.VolumeHealth_VolumeHealthEntry{{Status: csi.VolumeHealthErrorType_DATA_LOSS, Reason: "TwoDisks"}},
			}}, nil
		})
	case *csi.CreateSnapshotRequest:
		resp, err = b.serve(ctx, call, req, req.GetSourceVolumeId(), func() (proto.Message, error) { return b.cut(req) })
	case *csi.GroupControllerGetCapabilitiesRequest:
		resp, err = b.question(ctx, call, groupCapabilities())
	case *csi.CreateVolumeGroupSnapshotRequest:
		resp, err = b.serveAll(ctx, call, req, req.GetSourceVolumeIds(), func() (proto.Message, error) { return b.cutGroup(req) })
	case *csi.GetVolumeGroupSnapshotRequest:
		resp, err = b.serve(ctx, call, req, req.GetGroupSnapshotId(), func() (proto.Message, error) { return b.lookGroup(req) })
	case *csi.DeleteVolumeGroupSnapshotRequest:
		resp, err = b.serve(ctx, call, req, req.GetGroupSnapshotId(), func() (proto.Message, error) { return b.discardGroup(req) })
	case *csi.ListVolumesRequest:
		resp, err = b.serve(ctx, call, req, req.GetStartingToken(), func() (proto.Message, error) { return b.listVolumes(req) })
	case *csi.ListSnapshotsRequest:
		resp, err = b.serve(ctx, call, req, req.GetSnapshotId(), func() (proto.Message, error) { return b.list(req) })
	case *csi.DeleteSnapshotRequest:
		resp, err = b.serve(ctx, call, req, req.GetSnapshotId(), func() (proto.Message, error) { return b.discard(req) })
	default:
		err = status.Errorf(codes.Unimplemented, "%s", method)
	}
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), resp)
	return nil
}

func (b *backend) question(ctx context.Context, call string, resp proto.Message) (proto.Message, error) {
	b.mu.Lock()
	b.asked = append(b.asked, call)
	b.mu.Unlock()
	f := b.faultFor(call, nil)
	if err := cmp.Or(f.hold(ctx), f.before); err != nil {
		return nil, err
	}
	return resp, nil
}

// serve runs one changing call, with its fault. Calls for one volume must not overlap.
func (b *backend) serve(ctx context.Context, call string, req proto.Message, key string, effect func() (proto.Message, error)) (proto.Message, error) {
	return b.serveAll(ctx, call, req, []string{key}, effect)
}

// serveAll is serve for a call about several volumes.
func (b *backend) serveAll(ctx context.Context, call string, req proto.Message, keys []string, effect func() (proto.Message, error)) (proto.Message, error) {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = b.volumeKey(key)
	}
	b.mu.Lock()
	b.log = append(b.log, call+" "+strings.Join(keys, "+"))
	for _, id := range ids {
		if other, ok := b.busy[id]; ok {
			b.breach("%s for %s while %s is in flight", call, id, other)
		}
		b.busy[id] = call
	}
	b.inFlight++
	b.most = max(b.most, b.inFlight)
	secret, apart := b.secrets[call]
	if !apart {
		secret = b.secret
	}
	if s, ok := req.(interface{ GetSecrets() map[string]string }); ok && !maps.Equal(s.GetSecrets(), secret) {
		b.breach("%s came with secrets %v, want %v", call, s.GetSecrets(), secret)
	}
	b.mu.Unlock()
	f := b.faultFor(call, req)
	defer func() {
		b.mu.Lock()
		for _, id := range ids {
			delete(b.busy, id)
		}
		b.inFlight--
		b.mu.Unlock()
	}()
	if err := f.hold(ctx); err != nil {
		return nil, err
	}
	if f.before != nil {
		return nil, f.before
	}
	b.mu.Lock()
	resp, err := effect()
	b.mu.Unlock()
	if err == nil && f.after != nil {
		return nil, f.after
	}
	return resp, err
}

func (b *backend) faultFor(call string, req proto.Message) fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil {
		return fault{}
	}
	return b.fault(call, req)
}

func (f fault) hold(ctx context.Context) error {
	if f.wait == nil {
		return nil
	}
	select {
	case <-f.wait:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// volumeKey maps a handle to its volume's name, so that both have one key.
func (b *backend) volumeKey(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, v := range b.volumes {
		if v.handle == key {
			return name
		}
	}
	return key
}

// set changes how the backend behaves.
func (b *backend) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *backend) breach(format string, args ...any) {
	b.breaches = append(b.breaches, fmt.Sprintf(format, args...))
}

func (b *backend) create(req *csi.CreateVolumeRequest) (proto.Message, error) {
	required, limit := req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes()
	if required <= 0 || limit < 0 || len(req.GetVolumeCapabilities()) == 0 {
		b.breach("CreateVolume %s without size or capabilities", req.GetName())
		return nil, status.Error(codes.InvalidArgument, "size and capabilities are required")
	}
	if src := req.GetVolumeContentSource().GetVolume().GetVolumeId(); src != "" && b.byHandle(src) == nil {
		return nil, status.Error(codes.NotFound, "source volume")
	}
	if src := req.GetVolumeContentSource().GetSnapshot().GetSnapshotId(); strings.HasPrefix(src, "cut-") && b.cutOf(src) == nil {
		b.breach("CreateVolume %s of snapshot %s, which is not there", req.GetName(), src)
	}
	v := b.volumes[req.GetName()]
	if v == nil {
		b.next++
		v = &stored{
			handle: fmt.Sprintf("vol-%d", b.next), bytes: required, nodes: map[string]bool{},
			req: proto.Clone(req).(*csi.CreateVolumeRequest), has: req.GetMutableParameters(),
		}
		b.volumes[req.GetName()] = v
	}
	if have, want := stripped(v.req), stripped(req); !proto.Equal(have, want) {
		return nil, status.Error(codes.AlreadyExists, "a volume of this name is otherwise")
	}
	made := &csi.Volume{
		VolumeId: v.handle, CapacityBytes: v.bytes, VolumeContext: map[string]string{"made": "yes"},
		ContentSource: req.GetVolumeContentSource(),
	}
	if r := req.GetAccessibilityRequirements(); r != nil {
		made.AccessibleTopology = r.GetPreferred()
	}
	if b.answer != nil {
		b.answer(made)
	}
	return &csi.CreateVolumeResponse{Volume: made}, nil
}

func stripped(req *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	req = proto.Clone(req).(*csi.CreateVolumeRequest)
	req.Secrets = nil
	return req
}

func (b *backend) byHandle(handle string) *stored {
	for _, v := range b.volumes {
		if v.handle == handle {
			return v
		}
	}
	return nil
}

func (b *backend) remove(req *csi.DeleteVolumeRequest) (proto.Message, error) {
	v := b.byHandle(req.GetVolumeId())
	if v == nil {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if len(v.nodes) > 0 {
		b.breach("DeleteVolume of %s, which is attached", req.GetVolumeId())
		return nil, status.Error(codes.FailedPrecondition, "in use")
	}
	delete(b.volumes, v.req.GetName())
	return &csi.DeleteVolumeResponse{}, nil
}

func (b *backend) grow(req *csi.ControllerExpandVolumeRequest) (proto.Message, error) {
	v := b.byHandle(req.GetVolumeId())
	if v == nil {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if len(b.growth) == 1 && b.growth[0] == csi.PluginCapability_VolumeExpansion_OFFLINE && len(v.nodes) > 0 {
		b.breach("ControllerExpandVolume of %s, which is attached, and the driver only expands offline", req.GetVolumeId())
		return nil, status.Error(codes.FailedPrecondition, "in use")
	}
	v.bytes = max(v.bytes, req.GetCapacityRange().GetRequiredBytes())
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.bytes, NodeExpansionRequired: b.nodeExpansion}, nil
}

func (b *backend) modify(req *csi.ControllerModifyVolumeRequest) (proto.Message, error) {
	v := b.byHandle(req.GetVolumeId())
	if v == nil {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if len(req.GetMutableParameters()) == 0 {
		b.breach("ControllerModifyVolume of %s without mutable_parameters", req.GetVolumeId())
	}
	v.has = req.GetMutableParameters()
	return &csi.ControllerModifyVolumeResponse{}, nil
}

func (b *backend) publish(req *csi.ControllerPublishVolumeRequest) (proto.Message, error) {
	v := b.byHandle(req.GetVolumeId())
	if v == nil {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if req.GetNodeId() == "" || req.GetReadonly() || req.GetVolumeCapability() == nil {
		b.breach("ControllerPublishVolume: %v", req)
	}
	v.nodes[req.GetNodeId()] = true
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "/dev/" + v.handle + b.padding}}, nil
}

func (b *backend) unpublish(req *csi.ControllerUnpublishVolumeRequest) (proto.Message, error) {
	v := b.byHandle(req.GetVolumeId())
	if v == nil {
		return nil, status.Error(codes.NotFound, "no such volume")
	}
	if req.GetNodeId() == "" {
		b.breach("ControllerUnpublishVolume of %s from every node", req.GetVolumeId())
	}
	delete(v.nodes, req.GetNodeId())
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (b *backend) pluginCapabilities() *csi.GetPluginCapabilitiesResponse {
	resp := &csi.GetPluginCapabilitiesResponse{}
	for _, s := range b.services {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: s},
		}})
	}
	for _, g := range b.growth {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: g},
		}})
	}
	return resp
}

func (b *backend) nodeCapabilities() *csi.NodeGetCapabilitiesResponse {
	resp := &csi.NodeGetCapabilitiesResponse{}
	if b.nodeGrow {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_EXPAND_VOLUME},
		}})
	}
	return resp
}

func (b *backend) controllerCapabilities() *csi.ControllerGetCapabilitiesResponse {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, r := range b.rpcs {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: r},
		}})
	}
	return resp
}

// calls lists the changing calls that were made, as "CreateVolume pvc-1".
func (b *backend) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

// names lists the volumes that exist.
func (b *backend) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.volumes))
}

func (b *backend) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, breach := range b.breaches {
		t.Error("breach: " + breach)
	}
}
