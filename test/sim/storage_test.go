package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stored is a volume or a snapshot at the storage. Its name is its id.
type stored struct {
	size       int64
	attributes string
	from       string // the volume or snapshot it was made from
	looks      int    // looks still to come at which the snapshot is not ready
	owner      string // for a snapshot: its own name, or that of the group that asks for it
	bundle     string // the id of its group
	hold       *hold  // the freeze during which it was made
}

// backend is a driver's connection for the controller.
type backend struct{ d *driver }

func (backend) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// capable answers calls for capabilities, and reports whether the call is one.
func (b backend) capable(reply any) bool {
	switch answer := reply.(type) {
	case *csi.GetPluginCapabilitiesResponse:
		answer.Capabilities = []*csi.PluginCapability{
			{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
			{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
		}
		if b.d.w.set.groups {
			answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
				Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE}},
			})
		}
	case *csi.GroupControllerGetCapabilitiesResponse:
		answer.Capabilities = []*csi.GroupControllerServiceCapability{{Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}}}}
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

// inquiry is a call to the storage: the volumes and snapshots that it changes or asks for, and
// those that it copies.
type inquiry struct {
	verb     string
	of, from []string
}

func inquiryOf(method string, args any) inquiry {
	r := inquiry{verb: path.Base(method)}
	switch a := args.(type) {
	case *csi.CreateVolumeRequest:
		r.of = []string{a.GetName()}
		if from := a.GetVolumeContentSource().GetVolume().GetVolumeId() + a.GetVolumeContentSource().GetSnapshot().GetSnapshotId(); from != "" {
			r.from = []string{from}
		}
	case *csi.DeleteVolumeRequest:
		r.of = []string{a.GetVolumeId()}
	case *csi.ControllerExpandVolumeRequest:
		r.of = []string{a.GetVolumeId()}
	case *csi.ControllerModifyVolumeRequest:
		r.of = []string{a.GetVolumeId()}
	case *csi.CreateSnapshotRequest:
		r.of, r.from = []string{a.GetName()}, []string{a.GetSourceVolumeId()}
	case *csi.DeleteSnapshotRequest:
		r.of = []string{a.GetSnapshotId()}
	case *csi.CreateVolumeGroupSnapshotRequest:
		r.of, r.from = []string{a.GetName()}, a.GetSourceVolumeIds()
	case *csi.GetVolumeGroupSnapshotRequest:
		r.of = append([]string{a.GetGroupSnapshotId()}, a.GetSnapshotIds()...)
	case *csi.DeleteVolumeGroupSnapshotRequest:
		r.of = append([]string{a.GetGroupSnapshotId()}, a.GetSnapshotIds()...)
	}
	return r
}

// cuts reports whether the call makes a snapshot, during which its volumes get no other call.
func (r inquiry) cuts() bool {
	return r.verb == "CreateSnapshot" || r.verb == "CreateVolumeGroupSnapshot"
}

// removes reports whether the call deletes.
func (r inquiry) removes() bool { return strings.HasPrefix(r.verb, "Delete") }

// Invoke serves the controller's calls. The effect of a call is durable even if its answer is lost.
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
	kind := req.verb
	grouped := isGroup(ownerOf(req.of[0]))
	if grouped { // the calls of one group are made at one moment
		kind += " " + req.of[0]
	}
	l.nth[kind]++
	roll := w.dice("backend", kind, l.number, l.nth[kind], w.faults.salt)
	fails := roll%100 < w.faults.percent
	how := roll / 7 % 3
	takes := time.Duration(roll/100%2000) * time.Millisecond
	if grouped && fails {
		if how = roll / 7 % 5; how == 4 {
			takes = 24 * time.Hour
		}
	}
	if w.springs("storage") {
		w.count.crashes["in a call to the storage"]++
		if w.trap.after {
			_ = w.serve(args, reply)
		}
		w.ends(l)
	}
	w.mu.Unlock()
	waited := b.d.nap(ctx, takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer l.answered(req)
	switch {
	case !waited && (l.dead || roll/7%2 == 0), fails && how == 0:
		return status.Error(codes.Unavailable, "without effect")
	case fails && how == 1:
		return status.Error(codes.Internal, "without effect, and definite")
	case fails && how == 3 && req.cuts(): // CSI lets a driver refuse like this if it made nothing
		if w.shelf[req.of[0]] == nil && w.bundles[req.of[0]] == nil {
			return status.Error([]codes.Code{codes.ResourceExhausted, codes.InvalidArgument}[roll/35%2], "no room")
		}
	}
	if err := w.serve(args, reply); err != nil {
		return err
	}
	if fails || !waited {
		return status.Error(codes.Unavailable, "with effect")
	}
	return nil
}

// answered notes the end of a call; mu is held.
func (l *life) answered(r inquiry) {
	for _, of := range r.of {
		l.asking[of]--
	}
	for _, from := range r.from {
		l.reading[from]--
		if r.cuts() {
			l.cutting[from]--
		}
	}
}

// serve executes a call; mu is held.
func (w *world) serve(args, reply any) error {
	switch req := args.(type) {
	case *csi.CreateVolumeRequest:
		return w.create(req, reply.(*csi.CreateVolumeResponse))
	case *csi.DeleteVolumeRequest:
		w.judge.deleted(req.GetVolumeId())
		delete(w.backend, req.GetVolumeId())
		w.orders[nameOf(req.GetVolumeId())] = 0
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
		w.carriedOut(ownerOf(req.GetSnapshotId()))
	case *csi.CreateVolumeGroupSnapshotRequest:
		return w.snapGroup(req, reply.(*csi.CreateVolumeGroupSnapshotResponse))
	case *csi.GetVolumeGroupSnapshotRequest:
		b := w.bundles[req.GetGroupSnapshotId()]
		if b == nil {
			w.contradicts("groups: GetVolumeGroupSnapshot of %s, which is gone", req.GetGroupSnapshotId())
			return status.Error(codes.NotFound, "no such group")
		}
		reply.(*csi.GetVolumeGroupSnapshotResponse).GroupSnapshot = w.bundled(req.GetGroupSnapshotId())
	case *csi.DeleteVolumeGroupSnapshotRequest:
		w.judge.dissolved(req.GetGroupSnapshotId(), req.GetSnapshotIds())
		for _, id := range w.ofOwner(ownerOf(req.GetGroupSnapshotId())) {
			delete(w.shelf, id)
		}
		delete(w.bundles, req.GetGroupSnapshotId())
		w.carriedOut(ownerOf(req.GetGroupSnapshotId()))
	default:
		return status.Error(codes.Unimplemented, fmt.Sprintf("%T", args))
	}
	return nil
}

func (w *world) create(req *csi.CreateVolumeRequest, answer *csi.CreateVolumeResponse) error {
	name, source := req.GetName(), req.GetVolumeContentSource()
	from := source.GetVolume().GetVolumeId() + source.GetSnapshot().GetSnapshotId()
	if from != "" && w.backend[from] == nil && w.shelf[from] == nil {
		w.contradicts("claims: CreateVolume %s of %s, which is gone", name, from)
		return status.Error(codes.NotFound, "no such source")
	}
	id := w.handleFor(name)
	v := w.backend[id]
	if v == nil {
		v = &stored{size: req.GetCapacityRange().GetRequiredBytes(), attributes: req.GetMutableParameters()["tier"], from: from}
		w.backend[id] = v
	}
	if from != v.from {
		w.contradicts("claims: CreateVolume %s of %q, which was made of %q", name, from, v.from)
	}
	if v.size < req.GetCapacityRange().GetRequiredBytes() || v.attributes != req.GetMutableParameters()["tier"] {
		return status.Error(codes.AlreadyExists, "otherwise")
	}
	answer.Volume = &csi.Volume{VolumeId: id, CapacityBytes: v.size, ContentSource: source}
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
		s = w.shelve(name, of)
	}
	s.looks--
	answer.Snapshot = &csi.Snapshot{SnapshotId: name, SourceVolumeId: s.from, SizeBytes: s.size, ReadyToUse: s.looks < 0}
	return nil
}

// shelve makes a snapshot of a volume; mu is held.
func (w *world) shelve(name, of string) *stored {
	s := &stored{size: w.backend[of].size, from: of, looks: int(w.dice("looks", name) % 3), owner: ownerOf(name), hold: w.holds[state.SharedID(volumes[of].driver, of)]}
	for _, id := range w.ofOwner(s.owner) {
		if w.shelf[id].from == of {
			w.contradicts("groups: snapshot %s is made of %s beside %s", name, of, id)
		}
	}
	w.shelf[name] = s
	return s
}

// carriedOut ends the orders of an owner that has no snapshot left; mu is held.
func (w *world) carriedOut(owner string) {
	if len(w.ofOwner(owner)) == 0 {
		w.orders[owner], w.judge.whole[owner] = 0, false
		for name, handle := range copies {
			if ownerOf(handle) == owner {
				w.orders[name] = 0
			}
		}
	}
}

func (w *world) snapGroup(req *csi.CreateVolumeGroupSnapshotRequest, answer *csi.CreateVolumeGroupSnapshotResponse) error {
	name, of := req.GetName(), req.GetSourceVolumeIds()
	for _, id := range of {
		if w.backend[id] == nil {
			w.contradicts("groups: CreateVolumeGroupSnapshot %s of volume %s, which is gone", name, id)
			return status.Error(codes.NotFound, "no such volume")
		}
	}
	b := w.bundles[name]
	if b == nil {
		b = &bundle{owner: ownerOf(name), of: of}
		for _, id := range of {
			cut := fmt.Sprintf("snapshot-%s-%s", b.owner, id)
			w.shelve(cut, id).bundle = name
			b.snapshots = append(b.snapshots, cut)
		}
		w.bundles[name] = b
	}
	if !slices.Equal(of, b.of) {
		w.contradicts("groups: CreateVolumeGroupSnapshot %s of %v, which was made of %v", name, of, b.of)
	}
	answer.GroupSnapshot = w.bundled(name)
	return nil
}

// bundled returns the answer about a group snapshot; mu is held.
func (w *world) bundled(id string) *csi.VolumeGroupSnapshot {
	g := &csi.VolumeGroupSnapshot{GroupSnapshotId: id, ReadyToUse: true}
	for _, cut := range w.bundles[id].snapshots {
		s := w.shelf[cut]
		s.looks--
		g.ReadyToUse = g.ReadyToUse && s.looks < 0
		g.Snapshots = append(g.Snapshots, &csi.Snapshot{SnapshotId: cut, SourceVolumeId: s.from, SizeBytes: s.size, ReadyToUse: s.looks < 0, GroupSnapshotId: id})
	}
	return g
}

// asked judges whether a call may begin: there is one at a time for a volume or snapshot, and none
// deletes what another copies; mu is held.
func (j *judge) asked(l *life, r inquiry) {
	for _, of := range r.of {
		if l.asking[of] > 0 {
			j.w.breach("storage: %s of %s beside another call for it", r.verb, of)
		}
		if l.cutting[of] > 0 {
			j.w.breach("storage: %s of %s beside another call for the volume", r.verb, of)
		}
		if r.removes() && l.reading[of] > 0 {
			j.w.breach("storage: %s of %s while a call copies it", r.verb, of)
		}
	}
	for _, from := range r.from {
		if r.cuts() && (l.asking[from] > 0 || l.cutting[from] > 0) {
			j.w.breach("storage: %s of %s beside another call for the volume", r.verb, from)
		}
	}
	for _, of := range r.of {
		l.asking[of]++
	}
	for _, from := range r.from {
		l.reading[from]++
		if r.cuts() {
			l.cutting[from]++
		}
	}
	switch r.verb {
	case "DeleteVolume":
		j.deleted(r.of[0])
		j.copied(r.of[0])
	case "DeleteSnapshot":
		j.discarded(r.of[0])
		j.shared(r.of[0])
	case "DeleteVolumeGroupSnapshot":
		j.dissolved(r.of[0], r.of[1:])
	}
}

// deleted checks that a deleted volume has nothing on the node and that its owner ordered the
// deletion; mu is held.
func (j *judge) deleted(handle string) {
	name := nameOf(handle)
	id := state.SharedID(volumes[name].driver, handle)
	if j.of(id).made() {
		j.w.breach("claims: DeleteVolume of %s, which is staged or published or may be", id)
	}
	if j.w.disk.lost && !j.w.asked[name] {
		j.w.breach("claims: DeleteVolume of %s, which was asked for before the journal lost records", name)
	}
	if j.w.orders[name] == 0 && j.w.backend[handle] != nil && !j.w.disk.damaged {
		j.w.breach("claims: DeleteVolume of %s, which its owner keeps", name)
	}
}

// copied checks that the storage has copied what the remaining group snapshots need of a deleted
// volume; mu is held.
func (j *judge) copied(name string) {
	for id, s := range j.w.shelf {
		if s.from == name && s.bundle != "" && s.looks >= 0 && j.w.orders[s.owner] == 0 {
			j.w.contradicts("groups: DeleteVolume of %s, whose snapshot %s is not ready", name, id)
		}
	}
}

// discarded checks that a snapshot's owner ordered its deletion. A group's snapshot goes alone only
// if the group was never whole; mu is held.
func (j *judge) discarded(id string) {
	s := j.w.shelf[id]
	switch {
	case s == nil:
	case j.w.disk.lost && !isGroup(s.owner) && !j.w.asked[s.owner]:
		j.w.breach("snapshots: DeleteSnapshot of %s, which was asked for before the journal lost records", id)
	case j.w.forgets() && !j.w.disk.lost: // an operator accepted that
	case s.bundle != "":
		j.w.breach("groups: DeleteSnapshot of %s, which is one of group %s", id, s.bundle)
	case j.w.orders[s.owner] == 0 && (!isGroup(s.owner) || j.whole[s.owner]):
		j.w.breach("snapshots: DeleteSnapshot of %s, which its owner keeps", id)
	}
}

// dissolved checks that a group snapshot's owner ordered its deletion, and that the call names all
// of its snapshots; mu is held.
func (j *judge) dissolved(id string, snapshots []string) {
	b := j.w.bundles[id]
	switch {
	case b == nil:
	case j.w.disk.lost && !j.w.asked[b.owner] && j.whole[b.owner]:
		j.w.breach("groups: DeleteVolumeGroupSnapshot of %s, which was asked for before the journal lost records", id)
	case j.w.forgets() && !j.w.disk.lost: // an operator accepted that
	case j.w.orders[b.owner] == 0:
		j.w.breach("groups: DeleteVolumeGroupSnapshot of %s, which its owner keeps", id)
	case !slices.Equal(snapshots, b.snapshots):
		j.w.breach("groups: DeleteVolumeGroupSnapshot of %s with %v, which has %v", id, snapshots, b.snapshots)
	}
}

// storing returns steps of owners who have their volume grown, modified, copied and cut.
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
