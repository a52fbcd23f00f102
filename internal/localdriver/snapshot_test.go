package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func (r *rig) snap(name, volumeID string) string {
	r.t.Helper()
	resp, err := r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volumeID})
	if err != nil || !resp.GetSnapshot().GetReadyToUse() {
		r.t.Fatalf("CreateSnapshot = %v, %v, want one that is ready", resp, err)
	}
	id := resp.GetSnapshot().GetSnapshotId()
	r.t.Cleanup(func() {
		if _, err := r.DeleteSnapshot(r.ctx, &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
			r.t.Errorf("DeleteSnapshot: %v", err)
		}
		wantGone(r.t, r.d.store.dataPath(id, typeImage))
		wantGone(r.t, r.d.store.dataPath(id, typeDirectory))
	})
	return id
}

// reflinkRig returns a rig whose state is on a file system that can reflink: an xfs volume
// of another rig.
func reflinkRig(t *testing.T) *rig {
	t.Helper()
	base := newRig(t)
	disk := base.create(createReq("disk", 2*gib, fsCap("xfs", multi))).up()
	r := &rig{t: t, ctx: base.ctx, dir: disk}
	r.start()
	t.Cleanup(func() { r.stop(); checkNothingLeft(t, disk) })
	return r
}

// rigs runs a test on the file system of the temporary directory, and on one that can reflink.
func rigs(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("here", func(t *testing.T) { test(t, newRig(t)) })
	t.Run("reflink", func(t *testing.T) { test(t, reflinkRig(t)) })
}

// A snapshot and a clone of a mounted volume hold everything written before and nothing
// written after, and can be mounted beside it.
func TestCopiesAreOfOneMomentAndIndependent(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		for _, kind := range []string{"xfs", "ext4", "btrfs", "directory"} {
			t.Run(kind, func(t *testing.T) {
				r := &rig{t: t, ctx: r.ctx, dir: r.dir, d: r.d, IdentityClient: r.IdentityClient, ControllerClient: r.ControllerClient, NodeClient: r.NodeClient}
				req := createReq(kind, 128*mib, fsCap("", multi))
				if kind == "directory" {
					req.Parameters = map[string]string{"type": "directory"}
				} else {
					req.VolumeCapabilities[0] = fsCap(kind, multi)
				}
				original := r.create(req)
				target := original.up()
				mustWrite(t, target+"/file", "before")
				snapshot := r.snap(kind, original.id)
				req.Name, req.VolumeContentSource = kind+"-clone", fromVolume(original.id)
				clone := r.create(req)
				mustWrite(t, target+"/file", "after")
				req.Name, req.VolumeContentSource = kind+"-restored", fromSnapshot(snapshot)
				req.CapacityRange.RequiredBytes = 256 * mib
				restored := r.create(req)
				for _, copied := range []vol{clone, restored} {
					wantFile(t, copied.up()+"/file", "before")
					mustWrite(t, r.path("target-"+copied.id, "file"), "copy")
				}
				if kind != "directory" {
					wantSize(t, r.path("target-"+restored.id), 256*mib)
				}
				wantFile(t, target+"/file", "after")
				original.remove()
				clone.down()
				wantFile(t, clone.up()+"/file", "copy")
				// The name finds the copy again, even without its source.
				if again := r.create(req); again.id != restored.id {
					t.Errorf("create again = %s, want %s", again.id, restored.id)
				}
			})
		}
	})
}

func TestReflinkIsUsedWhereTheFileSystemCan(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		source, err := os.Create(r.path("source"))
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		if _, err := source.WriteString("text"); err != nil {
			t.Fatal(err)
		}
		target, err := os.Create(r.path("target"))
		if err != nil {
			t.Fatal(err)
		}
		defer target.Close()
		var st unix.Statfs_t
		if err := unix.Statfs(r.dir, &st); err != nil {
			t.Fatal(err)
		}
		can := st.Type == unix.XFS_SUPER_MAGIC || uint32(st.Type) == unix.BTRFS_SUPER_MAGIC
		if ok, err := reflink(source, target); ok != can || err != nil {
			t.Errorf("reflink = %v, %v, want %v", ok, err, can)
		}
		if can {
			wantFile(t, r.path("target"), "text")
		}
	})
}

// A device in use cannot be frozen: it is copied in one moment or not at all.
func TestRawBlockInUseIsCopiedOnlyByReflink(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		v := r.create(createReq("v", 32*mib, blockCap(multi)))
		writeDirect(t, v.up(), 'x')
		can, err := canReflink(r)
		if err != nil {
			t.Fatal(err)
		}
		if !can {
			_, err := r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
			wantCode(t, "snapshot of a device in use", err, codes.FailedPrecondition)
			v.down()
		}
		id := r.snap("s", v.id)
		req := createReq("restored", 32*mib, blockCap(multi))
		req.VolumeContentSource = fromSnapshot(id)
		if got := readDirect(t, r.create(req).up()); got != 'x' {
			t.Errorf("restored device begins with %q, want x", got)
		}
	})
}

func canReflink(r *rig) (bool, error) {
	a, err := os.Create(r.path("a"))
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := os.Create(r.path("b"))
	if err != nil {
		return false, err
	}
	defer b.Close()
	return reflink(a, b)
}

// The copy must not fill the holes, nor lose the data between them.
func TestSparseCopyKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	from, err := os.Create(dir + "/from")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(dir + "/to")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for _, offset := range []int64{0, 100 * mib, 200*mib + 123} {
		if _, err := from.WriteAt([]byte(fmt.Sprint("at ", offset)), offset); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.Truncate(256 * mib); err != nil {
		t.Fatal(err)
	}
	if err := copySparse(t.Context(), from, to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cmp", from.Name(), to.Name()).CombinedOutput(); err != nil {
		t.Errorf("copy differs: %s", out)
	}
	if n, err := allocatedBytes(to.Name()); err != nil || n > mib {
		t.Errorf("copy takes %d bytes, %v, want next to nothing", n, err)
	}
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no longer wanted"))
	if err := copySparse(cancelled, from, to); err == nil || err.Error() != "no longer wanted" {
		t.Errorf("cancelled copy = %v, want the cause", err)
	}
}

func TestDirectoryCopyKeepsAttributes(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	target := v.up()
	mustWrite(t, target+"/file", "text")
	if err := errors.Join(
		os.Chmod(target+"/file", 0o640), os.Chown(target+"/file", 1000, 2000),
		unix.Setxattr(target+"/file", "user.colour", []byte("red"), 0),
		os.Link(target+"/file", target+"/hard"), os.Symlink("/etc/passwd", target+"/soft"), os.Chmod(target, 0o770),
	); err != nil {
		t.Fatal(err)
	}
	req := directoryReq("clone")
	req.VolumeContentSource = fromVolume(v.id)
	clone := r.create(req).up()
	var a, b, root unix.Stat_t
	if err := errors.Join(unix.Lstat(clone+"/file", &a), unix.Lstat(clone+"/hard", &b), unix.Lstat(clone, &root)); err != nil {
		t.Fatal(err)
	}
	if a.Mode&0o777 != 0o640 || a.Uid != 1000 || a.Gid != 2000 || a.Ino != b.Ino || root.Mode&0o777 != 0o770 {
		t.Errorf("copy is %o %d:%d inode %d and %d below %o", a.Mode, a.Uid, a.Gid, a.Ino, b.Ino, root.Mode)
	}
	colour := make([]byte, 8)
	if n, err := unix.Getxattr(clone+"/file", "user.colour", colour); err != nil || string(colour[:n]) != "red" {
		t.Errorf("extended attribute is %q, %v", colour[:max(n, 0)], err)
	}
	if link, err := os.Readlink(clone + "/soft"); err != nil || link != "/etc/passwd" {
		t.Errorf("link is %q, %v", link, err)
	}
}

func TestCopyRefuses(t *testing.T) {
	r := newRig(t)
	image := r.create(createReq("image", 64*mib, fsCap("ext4", multi)))
	image.up()
	directory := r.create(directoryReq("directory"))
	for what, test := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		want   codes.Code
	}{
		"limit below the source": {func(q *csi.CreateVolumeRequest) { q.CapacityRange = &csi.CapacityRange{LimitBytes: 32 * mib} }, codes.OutOfRange},
		"another type":           {func(q *csi.CreateVolumeRequest) { q.VolumeContentSource = fromVolume(directory.id) }, codes.InvalidArgument},
		"another file system":    {func(q *csi.CreateVolumeRequest) { q.VolumeCapabilities[0] = fsCap("xfs", multi) }, codes.InvalidArgument},
	} {
		req := createReq("v", 64*mib, fsCap("", multi))
		req.VolumeContentSource = fromVolume(image.id)
		test.change(req)
		_, err := r.CreateVolume(r.ctx, req)
		wantCode(t, what, err, test.want)
	}
	id := r.snap("s", image.id)
	_, err := r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: directory.id})
	wantCode(t, "the same name for another volume", err, codes.AlreadyExists)
	_, err = r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "t", SourceVolumeId: "lv-1"})
	wantCode(t, "snapshot of no volume", err, codes.NotFound)
	_, err = r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "t", SourceVolumeId: image.id, Parameters: map[string]string{"a": "b"}})
	wantCode(t, "unknown parameter", err, codes.InvalidArgument)
	if again, err := r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: image.id}); err != nil || again.GetSnapshot().GetSnapshotId() != id {
		t.Errorf("snapshot again = %v, %v, want %s", again, err, id)
	}
}

// A driver killed in the middle of a copy must not leave programs hanging.
func TestFreezeOfAKilledDriverEnds(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	target := v.up()
	a := r.d.store.attachment(v.id)
	a.Frozen = true
	if err := errors.Join(r.d.store.putAttachment(a), freeze(a.Stage.Path)); err != nil {
		t.Fatal(err)
	}
	r.restart()
	mustWrite(t, target+"/file", "text")
	if r.d.store.attachment(v.id).Frozen {
		t.Error("the record still says frozen")
	}
}

// The next copy ends a freeze that the driver itself left, instead of taking it for the orchestrator's.
func TestALeftFreezeEndsWithTheNextCopy(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	target := v.up()
	a := r.d.store.attachment(v.id)
	a.Frozen = true
	if err := errors.Join(r.d.store.putAttachment(a), freeze(a.Stage.Path)); err != nil {
		t.Fatal(err)
	}
	resume, err := r.d.freezeVolume(r.ctx, volume{ID: v.id, Type: typeImage})
	if err != nil {
		t.Fatal(err)
	}
	if !r.d.store.attachment(v.id).Frozen {
		t.Error("the freeze was not announced")
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	if err := freeze(v.staging()); err != nil {
		t.Errorf("it is frozen yet: %v", err)
	}
	if err := thaw(v.staging()); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, target+"/file", "text")
}

// A stage that is unmounted by hand during a copy does not stay frozen below the pods' mounts.
func TestAStageThatIsUnmountedWhileItIsCopiedIsThawed(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	target := v.up()
	resume, err := r.d.freezeVolume(r.ctx, volume{ID: v.id, Type: typeImage})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(v.staging(), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	frozen := freeze(target)
	if err := thaw(target); err != nil || frozen != nil {
		t.Errorf("it is frozen yet: %v, %v", frozen, err)
	}
}

// Programs' writes wait while the copy is made, and go on after it.
func TestCopyFreezesAndThaws(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	target := v.up()
	resume, err := r.d.freezeVolume(r.ctx, volume{ID: v.id, Type: typeImage})
	if err != nil {
		t.Fatal(err)
	}
	if !r.d.store.attachment(v.id).Frozen {
		t.Error("the freeze was not announced")
	}
	if err := freeze(v.staging()); !errors.Is(err, unix.EBUSY) {
		t.Errorf("freezing what should be frozen = %v, want EBUSY", err)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, target+"/file", "text")
}

// A volume that the orchestrator has frozen is copied as it is, and stays frozen; if it is thawed
// meanwhile, the copy fails, since it is not of one moment, and the volume is not left frozen.
func TestCopyOfAVolumeThatTheOrchestratorHasFrozen(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 64*mib, fsCap("", multi)))
	target := v.up()
	mustWrite(t, target+"/file", "text")
	if err := freeze(v.staging()); err != nil {
		t.Fatal(err)
	}
	r.snap("s", v.id)
	if err := freeze(v.staging()); !errors.Is(err, unix.EBUSY) {
		t.Errorf("it is not frozen after the copy: %v", err)
	}
	resume, err := r.d.freezeVolume(r.ctx, volume{ID: v.id, Type: typeImage})
	if err != nil {
		t.Fatal(err)
	}
	if err := thaw(v.staging()); err != nil {
		t.Fatal(err)
	}
	if err := resume(); err == nil || !strings.Contains(err.Error(), "the copy is not consistent") {
		t.Errorf("a copy of a volume that was thawed: %v", err)
	}
	mustWrite(t, target+"/file", "more")
}
