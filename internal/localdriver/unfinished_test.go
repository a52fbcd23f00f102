package localdriver

import (
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// cloneReq asks for a clone of a volume that is like another.
func cloneReq(name, source string, like *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: like.VolumeCapabilities, Parameters: like.Parameters,
		VolumeContentSource: fromVolume(source),
	}
}

// unfinished records a clone as a driver leaves it that is killed before it copies.
func (r *rig) unfinished(req *csi.CreateVolumeRequest) volume {
	r.t.Helper()
	w, err := r.d.parseCreate(req)
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := r.d.plan(w, newID("lv", w.name))
	if err == nil {
		err = r.d.store.putVolume(v)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

func (r *rig) wantNothingOf(name string) {
	r.t.Helper()
	if left, _ := filepath.Glob(r.path("state", "*", "*-"+nameHash(name)+"-*")); len(left) > 0 {
		r.t.Errorf("of %s is left %q", name, left)
	}
}

// Between a kill and the repeated call, the source of a clone may be formatted, written and enlarged. The
// clone is of the volume as it is copied; the driver does not format it because the source once was blank.
func TestACloneThatAKillCutOffIsOfTheSourceAsItIsCopied(t *testing.T) {
	for _, tt := range []struct{ name, formatting string }{{"blank", ""}, {"mkfs was interrupted", fsExt4}} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			req := createReq("source", 32*mib, fsCap("ext4", multi))
			source := r.create(req)
			known, err := r.d.mustVolume(source.id)
			if err != nil {
				t.Fatal(err)
			}
			known.Formatting = tt.formatting
			if err := r.d.store.putVolume(known); err != nil {
				t.Fatal(err)
			}
			r.unfinished(cloneReq("clone", source.id, req))
			mustWrite(t, source.up()+"/file", "text")
			source.down()
			source.expand(48 * mib)
			clone := r.create(cloneReq("clone", source.id, req))
			wantFile(t, clone.up()+"/file", "text")
			if v, err := r.d.mustVolume(clone.id); err != nil || v.CapacityBytes != 48*mib {
				t.Errorf("the clone has %d bytes, %v, want those of the source", v.CapacityBytes, err)
			}
		})
	}
}

// An orchestrator that gives up does not know the id of what it wanted, so that nothing could delete it, and
// an image would keep its space.
func TestCreateVolumeThatFailsLeavesNothing(t *testing.T) {
	r := newRig(t)
	source := r.create(directoryReq("source"))
	useCopier(t, "exit 1")
	_, err := r.CreateVolume(r.ctx, cloneReq("clone", source.id, directoryReq("")))
	wantCode(t, "a clone whose copy fails", err, codes.Internal)
	r.wantNothingOf("clone")

	req := createReq("image", 32*mib, fsCap("ext4", multi))
	image := r.create(req)
	r.unfinished(cloneReq("late", image.id, req))
	image.remove()
	_, err = r.CreateVolume(r.ctx, cloneReq("late", image.id, req))
	wantCode(t, "a clone whose source was deleted after a kill", err, codes.NotFound)
	r.wantNothingOf("late")
}

func TestASnapshotWhoseSourceWasDeletedAfterAKillLeavesNothing(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap("ext4", multi)))
	known, err := r.d.mustVolume(v.id)
	if err != nil {
		t.Fatal(err)
	}
	n := snapshot{ID: newID("snap", "s"), Name: "s", SourceVolume: v.id, Phase: phaseCreating, copied: known.copyInfo()}
	if err := r.d.store.putSnapshot(n); err != nil {
		t.Fatal(err)
	}
	if err := r.d.copyData(r.ctx, known, n.ID); err != nil {
		t.Fatal(err)
	}
	v.remove()
	_, err = r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
	wantCode(t, "a snapshot of a deleted volume", err, codes.NotFound)
	r.wantNothingOf("s")
}
