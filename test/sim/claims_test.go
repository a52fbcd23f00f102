package sim

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// keyOf is the claim for which a volume is made.
func keyOf(name string) controller.Key { return controller.Key{Namespace: "n", Name: name} }

// claims are what one life of the daemon keeps of claims, in the journal.
type claims struct {
	w *world
	l *life
}

func (c claims) LoadBucket(ctx context.Context, bucket string) (state.Values, error) {
	return c.w.disk.journal.LoadBucket(ctx, bucket)
}

func (c claims) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.l.dead {
		return errDead
	}
	if w.disk.fail > 0 {
		w.disk.fail--
		w.count.faults["disk"]++
		return errDisk
	}
	return w.disk.journal.CommitBucket(ctx, bucket, changes)
}

type noSecrets struct{}

func (noSecrets) Secret(context.Context, state.SecretRef) (map[string]string, error) {
	return nil, errDisk
}

// usage answers as the program does: from the pods that sources list, and the manager.
type usage struct {
	w *world
	l *life
}

// Wanted is asked by the controller's loop, which nothing calls that holds mu.
func (u usage) Wanted(claim controller.Key) string {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	for uid, p := range u.w.wishes {
		if _, wants := p.vols[claim.Name]; wants {
			return "pod " + uid
		}
	}
	return ""
}

func (u usage) InUse(id state.VolumeID, name string) string {
	return u.l.m.UsedBy(id, name, stagePath(name))
}

// control runs a life's controller, and tells pods when their claims' volumes come and go.
func (l *life) control(ctx context.Context) {
	go l.c.Run(ctx)
	select {
	case <-l.c.Loaded():
	case <-ctx.Done():
		return
	}
	l.w.mu.Lock()
	for name, listed := range l.w.claims {
		if listed {
			l.c.SetClaim(l.w.claimOf(name))
		}
	}
	l.w.mu.Unlock()
	for {
		changed := l.c.Changed()
		l.w.mu.Lock()
		for uid, p := range l.told {
			for _, v := range p.Volumes {
				if volumes[v.Names[0]].claimed && !l.dead && (v.Problem == "") != l.bound(v.Names[0]) {
					l.set(uid, false)
					break
				}
			}
		}
		l.w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-l.died:
			return
		}
	}
}

// bound reports whether a claim is listed and has its volume; mu is held.
func (l *life) bound(name string) bool {
	if !l.w.claims[name] {
		return false
	}
	for _, v := range l.c.Volumes() {
		if v.Name == name && !v.Released {
			return true
		}
	}
	return false
}

func (w *world) claimOf(name string) controller.Claim {
	return controller.Claim{
		Key: keyOf(name), UID: name[len("pvc-"):], SizeBytes: 1, AccessModes: []state.AccessMode{state.ReadWriteOnce}, Mode: state.Filesystem,
		Class: controller.Class{Name: "c", Provisioner: volumes[name].driver},
	}
}

// claim lists a claim; mu is held.
func (w *world) claim(name string) {
	if w.claims[name] {
		return
	}
	w.claims[name] = true
	w.life.c.SetClaim(w.claimOf(name))
}

// unclaim is an owner who deletes a claim: it is refused before it is known who uses it,
// and while a pod names it; mu is held.
func (w *world) unclaim(name string) {
	l := w.life
	if l.dead || len(l.spoken) < len(sources) || !l.shown || !l.showsAll() {
		return
	}
	for _, p := range w.wishes {
		if _, wants := p.vols[name]; wants {
			return
		}
	}
	w.claims[name] = false
	l.c.RemoveClaim(keyOf(name))
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		_ = l.c.Delete(ctx, keyOf(name), false)
	}()
}

// unclaimAll judges that a claim whose pods are gone can be deleted, with its volume.
func (w *world) unclaimAll() {
	for range 3 {
		w.mu.Lock()
		for name := range w.claims {
			w.unclaim(name)
		}
		w.mu.Unlock()
		w.pass(patience)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.life.c.Claims()) > 0 || len(w.backend) > 0 && !w.disk.damaged {
		w.breach("claims: left after each was deleted: %+v, volumes %v", w.life.c.Claims(), sortedKeys(w.backend))
	}
}

// backend is a driver's connection as the controller has it.
type backend struct{ d *driver }

func (backend) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no streams")
}

// Invoke serves the calls that the controller makes. What a call does is durable even
// where its answer is lost.
func (b backend) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	verb := path.Base(method)
	w, l := b.d.w, b.d.l
	switch answer := reply.(type) {
	case *csi.GetPluginCapabilitiesResponse:
		answer.Capabilities = []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}}}
		return nil
	case *csi.NodeGetCapabilitiesResponse:
		return nil
	case *csi.ControllerGetCapabilitiesResponse:
		answer.Capabilities = []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}}}}
		return nil
	}
	w.mu.Lock()
	if l.dead {
		w.mu.Unlock()
		return status.Error(codes.Unavailable, "the daemon is dead")
	}
	var name string
	switch r := args.(type) {
	case *csi.CreateVolumeRequest:
		name = r.GetName()
	case *csi.DeleteVolumeRequest:
		name = r.GetVolumeId()
		w.judge.deleted(name)
	}
	w.count.calls[verb]++
	l.nth[verb]++
	roll := w.dice("backend", verb, l.number, l.nth[verb], w.faults.salt)
	fails := roll%100 < w.faults.percent
	w.mu.Unlock()
	if !b.d.nap(ctx, time.Duration(roll/100%2000)*time.Millisecond) {
		return status.Error(codes.Unavailable, "connection lost")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if fails && roll/7%2 == 0 {
		return status.Error(codes.Unavailable, "without effect")
	}
	switch answer := reply.(type) {
	case *csi.CreateVolumeResponse:
		w.backend[name] = true
		answer.Volume = &csi.Volume{VolumeId: name, CapacityBytes: 1}
	case *csi.DeleteVolumeResponse:
		w.judge.deleted(name)
		delete(w.backend, name)
	default:
		return status.Error(codes.Unimplemented, fmt.Sprintf("call %s", verb))
	}
	if fails {
		return status.Error(codes.Unavailable, "with effect")
	}
	return nil
}

// deleted judges that nothing of a volume is on the node when it is deleted; mu is held.
func (j *judge) deleted(name string) {
	id := state.SharedID(volumes[name].driver, name)
	if j.of(id).made() {
		j.w.breach("claims: DeleteVolume of %s, which is staged or published or may be", id)
	}
}
