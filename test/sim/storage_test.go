package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stored is a volume or a snapshot as the storage has it. Its name is its id.
type stored struct {
	size       int64
	attributes string
	from       string // the volume or snapshot that it was made of
	looks      int    // at a snapshot that was not ready
}

// backend is a driver's connection as the controller has it.
type backend struct{ d *driver }

func (backend) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// capable answers questions for capabilities, and reports whether the call is one.
func (backend) capable(reply any) bool {
	switch answer := reply.(type) {
	case *csi.GetPluginCapabilitiesResponse:
		answer.Capabilities = []*csi.PluginCapability{
			{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
			{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
		}
	case *csi.NodeGetCapabilitiesResponse:
	case *csi.ControllerGetCapabilitiesResponse:
		for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
			csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
			csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
		} {
			answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}}})
		}
	default:
		return false
	}
	return true
}

// inquiry is a call to the storage: the volume or snapshot that it changes, and the one that it copies.
type inquiry struct{ verb, of, from string }

func inquiryOf(method string, args any) inquiry {
	r := inquiry{verb: path.Base(method)}
	switch a := args.(type) {
	case *csi.CreateVolumeRequest:
		r.of = a.GetName()
		r.from = a.GetVolumeContentSource().GetVolume().GetVolumeId() + a.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	case *csi.DeleteVolumeRequest:
		r.of = a.GetVolumeId()
	case *csi.ControllerExpandVolumeRequest:
		r.of = a.GetVolumeId()
	case *csi.ControllerModifyVolumeRequest:
		r.of = a.GetVolumeId()
	case *csi.CreateSnapshotRequest:
		r.of, r.from = a.GetName(), a.GetSourceVolumeId()
	case *csi.DeleteSnapshotRequest:
		r.of = a.GetSnapshotId()
	}
	return r
}

// Invoke serves the calls that the controller makes. What a call does is durable even
// where its answer is lost.
func (b backend) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	if b.capable(reply) {
		return nil
	}
	w, l := b.d.w, b.d.l
	req := inquiryOf(method, args)
	w.mu.Lock()
	if l.dead {
		w.mu.Unlock()
		return status.Error(codes.Unavailable, "the daemon is dead")
	}
	w.judge.asked(l, req)
	w.count.calls[req.verb]++
	l.nth[req.verb]++
	roll := w.dice("backend", req.verb, l.number, l.nth[req.verb], w.faults.salt)
	fails := roll%100 < w.faults.percent
	if w.springs("storage") {
		w.count.crashes["in a call to the storage"]++
		if w.trap.after {
			_ = w.serve(args, reply)
		}
		w.ends(l)
	}
	w.mu.Unlock()
	waited := b.d.nap(ctx, time.Duration(roll/100%2000)*time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer l.answered(req)
	switch {
	case !waited && (l.dead || roll/7%2 == 0), fails && roll/7%3 == 0:
		return status.Error(codes.Unavailable, "without effect")
	case fails && roll/7%3 == 1:
		return status.Error(codes.Internal, "without effect, and definite")
	}
	if err := w.serve(args, reply); err != nil {
		return err
	}
	if fails || !waited {
		return status.Error(codes.Unavailable, "with effect")
	}
	return nil
}

// answered notes that a call is over; mu is held.
func (l *life) answered(r inquiry) {
	l.asking[r.of]--
	l.reading[r.from]--
	if r.verb == "CreateSnapshot" {
		l.cutting[r.from]--
	}
}

// serve does what a call says; mu is held.
func (w *world) serve(args, reply any) error {
	switch req := args.(type) {
	case *csi.CreateVolumeRequest:
		return w.create(req, reply.(*csi.CreateVolumeResponse))
	case *csi.DeleteVolumeRequest:
		w.judge.deleted(req.GetVolumeId())
		delete(w.backend, req.GetVolumeId())
		w.orders[req.GetVolumeId()] = 0
	case *csi.ControllerExpandVolumeRequest:
		v := w.backend[req.GetVolumeId()]
		if v == nil {
			return status.Error(codes.NotFound, "no such volume")
		}
		v.size = max(v.size, req.GetCapacityRange().GetRequiredBytes())
		reply.(*csi.ControllerExpandVolumeResponse).CapacityBytes = v.size
	case *csi.ControllerModifyVolumeRequest:
		v := w.backend[req.GetVolumeId()]
		if v == nil {
			return status.Error(codes.NotFound, "no such volume")
		}
		v.attributes = req.GetMutableParameters()["tier"]
	case *csi.CreateSnapshotRequest:
		return w.snap(req, reply.(*csi.CreateSnapshotResponse))
	case *csi.DeleteSnapshotRequest:
		w.judge.discarded(req.GetSnapshotId())
		delete(w.shelf, req.GetSnapshotId())
		w.orders[req.GetSnapshotId()[len("snapshot-"):]] = 0
	default:
		return status.Error(codes.Unimplemented, fmt.Sprintf("%T", args))
	}
	return nil
}

func (w *world) create(req *csi.CreateVolumeRequest, answer *csi.CreateVolumeResponse) error {
	name, source := req.GetName(), req.GetVolumeContentSource()
	from := source.GetVolume().GetVolumeId() + source.GetSnapshot().GetSnapshotId()
	if from != "" && w.backend[from] == nil && w.shelf[from] == nil {
		w.breach("claims: CreateVolume %s of %s, which is gone", name, from)
	}
	v := w.backend[name]
	if v == nil {
		v = &stored{size: req.GetCapacityRange().GetRequiredBytes(), attributes: req.GetMutableParameters()["tier"], from: from}
		w.backend[name] = v
	}
	if from != v.from {
		w.breach("claims: CreateVolume %s of %q, which was made of %q", name, from, v.from)
	}
	if v.size < req.GetCapacityRange().GetRequiredBytes() || v.attributes != req.GetMutableParameters()["tier"] {
		return status.Error(codes.AlreadyExists, "otherwise")
	}
	answer.Volume = &csi.Volume{VolumeId: name, CapacityBytes: v.size, ContentSource: source}
	return nil
}

func (w *world) snap(req *csi.CreateSnapshotRequest, answer *csi.CreateSnapshotResponse) error {
	name, of := req.GetName(), req.GetSourceVolumeId()
	s, from := w.shelf[name], w.backend[of]
	if from == nil {
		if !w.disk.damaged {
			w.breach("snapshots: CreateSnapshot %s of volume %s, which is gone", name, of)
		}
		return status.Error(codes.NotFound, "no such volume")
	}
	if s == nil {
		s = &stored{size: from.size, from: of, looks: int(w.dice("looks", name) % 3)}
		w.shelf[name] = s
	}
	s.looks--
	answer.Snapshot = &csi.Snapshot{SnapshotId: name, SourceVolumeId: s.from, SizeBytes: s.size, ReadyToUse: s.looks < 0}
	return nil
}

// asked judges that a call may begin: one at a time for a volume or snapshot, and none that takes
// away what another reads; mu is held.
func (j *judge) asked(l *life, r inquiry) {
	if l.asking[r.of] > 0 {
		j.w.breach("storage: %s of %s beside another call for it", r.verb, r.of)
	}
	if r.verb == "CreateSnapshot" && l.asking[r.from] > 0 || l.cutting[r.of] > 0 {
		j.w.breach("storage: %s of %s %s beside another call for the volume", r.verb, r.of, r.from)
	}
	if r.verb == "CreateSnapshot" {
		l.cutting[r.from]++
	}
	if (r.verb == "DeleteVolume" || r.verb == "DeleteSnapshot") && l.reading[r.of] > 0 {
		j.w.breach("storage: %s of %s while a call copies it", r.verb, r.of)
	}
	l.asking[r.of]++
	l.reading[r.from]++
	switch r.verb {
	case "DeleteVolume":
		j.deleted(r.of)
	case "DeleteSnapshot":
		j.discarded(r.of)
	}
}

// deleted judges that nothing of a volume is on the node when it is deleted, and that its owner
// said so; mu is held.
func (j *judge) deleted(name string) {
	id := state.SharedID(volumes[name].driver, name)
	if j.of(id).made() {
		j.w.breach("claims: DeleteVolume of %s, which is staged or published or may be", id)
	}
	if j.w.orders[name] == 0 && j.w.backend[name] != nil && !j.w.disk.damaged {
		j.w.breach("claims: DeleteVolume of %s, which its owner keeps", name)
	}
}

// discarded judges that the owner of a snapshot said that it is to go; mu is held.
func (j *judge) discarded(id string) {
	if j.w.orders[id[len("snapshot-"):]] == 0 && j.w.shelf[id] != nil {
		j.w.breach("snapshots: DeleteSnapshot of %s, which its owner keeps", id)
	}
}

// storing makes steps of owners who have their volume grown, modified, copied and cut.
func storing(r *rand.Rand) []string {
	copied := fmt.Sprintf("pvc-%d", 1+r.IntN(3))
	snapshot := fmt.Sprintf("s%d", r.IntN(2))
	data := []string{"", " data"}[r.IntN(2)]
	switch roll := r.IntN(20); {
	case roll < 5:
		return []string{"cut " + snapshot}
	case roll < 7:
		return []string{"uncut " + snapshot + data}
	case roll < 9:
		return []string{"grow pvc-0"}
	case roll < 11:
		return []string{"modify pvc-0 " + []string{"gold", "silver"}[r.IntN(2)]}
	case roll < 14:
		return []string{"claim " + copied}
	case roll < 16:
		return []string{"unclaim " + copied + data}
	case roll < 17: // all at once
		return []string{"grow pvc-0", "modify pvc-0 gold", "claim pvc-1", "cut s0"}
	case roll < 18:
		return []string{fmt.Sprintf("trap record %d %v", 1+r.IntN(4), r.IntN(2) == 0)}
	case roll < 19:
		return []string{fmt.Sprintf("trap storage %d %v", 1+r.IntN(3), r.IntN(2) == 0)}
	default:
		return []string{"wait " + []string{"500ms", "3s", "2m"}[r.IntN(3)]}
	}
}
