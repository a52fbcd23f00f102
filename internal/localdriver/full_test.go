package localdriver

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// smallRig is a rig whose state directory is a small file system of its own.
func smallRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ctx: context.Background(), dir: t.TempDir()}
	if err := os.Mkdir(r.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("small", r.path("state"), "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.stop()
		if err := unix.Unmount(r.path("state"), 0); err != nil {
			t.Error(err)
		}
		checkNothingLeft(t, r.dir)
	})
	r.start()
	return r
}

// fillUp writes to the file until the file system is full.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// A pod that fills the disk through one volume stops no pod and no deletion: these are what frees space.
func TestOnAFullDiskVolumesAreUnmountedAndDeleted(t *testing.T) {
	r := smallRig(t)
	v, w := r.create(directoryReq("v")), r.create(directoryReq("w"))
	target := v.up()
	mustWrite(t, w.up()+"/file", "text")
	snapshot, g := r.snap("s", w.id), r.cut("g", r.create(directoryReq("idle")).id)
	fillUp(t, target+"/filler")

	_, err := r.CreateVolume(r.ctx, directoryReq("new"))
	wantCode(t, "CreateVolume on a full disk", err, codes.ResourceExhausted)
	w.down()
	_, err = r.DeleteSnapshot(r.ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot})
	wantCode(t, "DeleteSnapshot on a full disk", err, codes.OK)
	fillUp(t, target+"/filler2")
	wantCode(t, "DeleteVolumeGroupSnapshot on a full disk", r.uncut(g), codes.OK)
	fillUp(t, target+"/filler3")
	v.down()
	_, err = r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	wantCode(t, "DeleteVolume on a full disk", err, codes.OK)
	wantGone(t, r.d.store.dataPath(v.id, typeDirectory))

	r.restart()
	for _, id := range []string{v.id, snapshot} {
		if _, there, err := r.d.store.volume(id); there || err != nil {
			t.Errorf("%s is back after a restart, or unreadable: %v", id, err)
		}
	}
	wantFile(t, w.up()+"/file", "text")
}

// The answer to an expansion may be lost, and the disk be full when the call is repeated.
func TestAnExpansionIsRepeatedOnAFullDisk(t *testing.T) {
	r := smallRig(t)
	v := r.create(createReq("v", 256<<10, blockCap(multi)))
	v.expand(512 << 10)
	fillUp(t, r.path("state", "filler"))
	v.expand(512 << 10)
	_, err := r.ControllerExpandVolume(r.ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 513 << 10},
	})
	wantCode(t, "more space on a full disk", err, codes.ResourceExhausted)
}
