package localdriver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

func statfsTotal(t *testing.T, path string) int64 {
	t.Helper()
	_, total, err := statfsBytes(path)
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// wantSize checks that the size of the file system at path fits a volume of bytes: never
// larger, and smaller only by what a file system keeps for itself.
func wantSize(t *testing.T, path string, bytes int64) {
	t.Helper()
	if got := statfsTotal(t, path); got > bytes || got < bytes*8/10 {
		t.Errorf("file system at %s has %d MiB, want about %d MiB", path, got/mib, bytes/mib)
	}
}

// The sizes span the 300 MiB below which mkfs.xfs needs --unsupported.
func TestFileSystemHasTheSizeOfItsVolume(t *testing.T) {
	for _, test := range []struct {
		fsType string
		bytes  int64
	}{
		{"", 256 * mib}, {"xfs", 16 * mib}, {"xfs", 64 * mib}, {"xfs", 512 * mib}, {"ext4", 256 * mib}, {"ext4", 4 * mib}, {"btrfs", 256 * mib}, {"btrfs", 128 * mib},
	} {
		t.Run(fmt.Sprintf("%s-%d", test.fsType, test.bytes/mib), func(t *testing.T) {
			r := newRig(t)
			v := r.create(createReq("v", test.bytes, fsCap(test.fsType, multi)))
			target := v.up()
			if test.bytes >= 64*mib { // the log takes most of a smaller one
				wantSize(t, target, test.bytes)
			}
			mustWrite(t, target+"/file", "text")
			v.down()
			wantGone(t, target)
			wantFile(t, v.up()+"/file", "text")
		})
	}
}

func TestVolumeHoldsNoMoreThanItsSize(t *testing.T) {
	r := newRig(t)
	target := r.create(createReq("v", 16*mib, fsCap("", multi))).up()
	err := os.WriteFile(target+"/big", make([]byte, 17*mib), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing 17 MiB to a volume of 16 = %v, want ENOSPC", err)
	}
}

// With helpers, they grow the file system, and the answer is the same.
func TestMountedFileSystemGrows(t *testing.T) {
	for _, name := range []string{"xfs", "btrfs", "ext4", "xfs in a helper", "ext4 in a helper"} {
		t.Run(name, func(t *testing.T) {
			fsType, _, away := strings.Cut(name, " ")
			r := newRig(t)
			if away {
				helpers := isolate.New(isolate.Config{Service: Helper()})
				r.d.helpers = helpers
				t.Cleanup(func() {
					if s := helpers.Stats(); s.Helpers != 1 {
						t.Errorf("helpers: %d, want 1", s.Helpers)
					}
					helpers.Close()
				})
			}
			v := r.create(createReq("v", 256*mib, fsCap(fsType, multi)))
			target := v.up()
			mustWrite(t, target+"/file", "text")
			v.expand(512 * mib)
			wantSize(t, target, 256*mib)
			err := v.nodeExpandErr(target)
			if fsType == "ext4" && !haveSysResource(t) {
				wantCode(t, "NodeExpandVolume without CAP_SYS_RESOURCE", err, codes.FailedPrecondition)
				v.down()
				target = v.up()
			} else if err != nil {
				t.Fatalf("NodeExpandVolume: %v", err)
			}
			wantSize(t, target, 512*mib)
			if statfsTotal(t, target) < 400*mib {
				t.Errorf("%s did not grow", fsType)
			}
			wantFile(t, target+"/file", "text")
			if err := v.nodeExpandErr(target); err != nil {
				t.Errorf("NodeExpandVolume again: %v", err)
			}
		})
	}
}

func haveSysResource(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestVolumeGrownWhileAwayIsLargeAtItsNextStage(t *testing.T) {
	for _, fsType := range []string{"xfs", "btrfs", "ext4"} {
		t.Run(fsType, func(t *testing.T) {
			r := newRig(t)
			v := r.create(createReq("v", 128*mib, fsCap(fsType, multi)))
			mustWrite(t, v.up()+"/file", "text")
			v.down()
			v.expand(384 * mib)
			target := v.up()
			if got := statfsTotal(t, target); got < 300*mib {
				t.Errorf("file system has %d MiB, want about 384", got/mib)
			}
			wantFile(t, target+"/file", "text")
		})
	}
}

func TestNodeExpandReachesThroughAReadOnlyTarget(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 16*mib, fsCap("", multi)))
	v.up()
	ro := r.path("ro")
	if err := v.publishErr(ro, true); err != nil {
		t.Fatal(err)
	}
	v.expand(64 * mib)
	if err := v.nodeExpandErr(ro); err != nil {
		t.Fatal(err)
	}
	wantSize(t, ro, 64*mib)
}

// deviceBytes returns the size of the block device at path.
func deviceBytes(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRawBlockVolumeIsADevice(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, blockCap(multi)))
	target := v.up()
	info, err := os.Stat(target)
	if err != nil || info.Mode()&os.ModeDevice == 0 || info.Mode()&os.ModeCharDevice != 0 {
		t.Fatalf("target is %v, %v, want a block device", info.Mode(), err)
	}
	if got := deviceBytes(t, target); got != 32*mib {
		t.Errorf("device has %d bytes, want 32 MiB", got)
	}
	writeDirect(t, target, 'x')
	ro := r.path("ro")
	if err := v.publishErr(ro, true); err != nil {
		t.Fatal(err)
	}
	if got := readDirect(t, ro); got != 'x' {
		t.Errorf("read-only target shows %q, want what was written", got)
	}
	if f, err := os.OpenFile(ro, os.O_WRONLY, 0); err == nil {
		if _, err := f.Write(make([]byte, 4096)); err == nil {
			err = f.Sync()
			t.Errorf("writing to a read-only device worked (%v)", err)
		}
		f.Close()
	}
	v.expand(64 * mib)
	if err := v.nodeExpandErr(target); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{target, ro} {
		if got := deviceBytes(t, path); got != 64*mib {
			t.Errorf("grown device %s has %d bytes, want 64 MiB", path, got)
		}
	}
	if err := v.unpublishErr(ro); err != nil {
		t.Fatal(err)
	}
	v.down()
	wantGone(t, target)
	if got := readDirect(t, v.up()); got != 'x' {
		t.Errorf("device shows %q after it was staged again, want what was written", got)
	}
}

func directPage() []byte {
	b := make([]byte, 8192)
	off := 4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)
	return b[off : off+4096]
}

func writeDirect(t *testing.T, path string, c byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := directPage()
	for i := range page {
		page[i] = c
	}
	if _, err := f.WriteAt(page, 0); err != nil {
		t.Fatal(err)
	}
}

func readDirect(t *testing.T, path string) byte {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := directPage()
	if _, err := f.ReadAt(page, 0); err != nil {
		t.Fatal(err)
	}
	return page[0]
}

func TestDirectoryVolumeKeepsItsFiles(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	target := v.up()
	mustWrite(t, target+"/file", "text")
	if err := v.publishErr(r.path("ro"), true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path("ro", "other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing through a read-only target = %v, want EROFS", err)
	}
	if err := v.unpublishErr(r.path("ro")); err != nil {
		t.Fatal(err)
	}
	v.down()
	wantFile(t, v.up()+"/file", "text")
}

// What is mounted below a target is neither in the stage nor in other targets, unless the call says that the pod asked
// for it; and below a stage of type directory not in the data. What an earlier version bound goes like these.
func TestMountsBelowATargetAreItsOwn(t *testing.T) {
	r := newRig(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mount(r.dir, r.dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(r.dir, unix.MNT_DETACH) })
	must(unix.Mount("", r.dir, "", unix.MS_SHARED, ""))
	mounted := func(dir string) bool {
		var at, up unix.Stat_t
		must(unix.Stat(dir+"/sub", &at))
		must(unix.Stat(dir, &up))
		return at.Dev != up.Dev
	}
	below := func(dir string, check func()) {
		must(unix.Mount("x", dir+"/sub", "tmpfs", 0, ""))
		check()
		must(unix.Unmount(dir+"/sub", 0))
	}
	req := directoryReq("v")
	req.VolumeCapabilities[0] = fsCap("", multi)
	v := r.create(req)
	target, peer, earlier := v.up(), r.path("peer"), r.path("earlier")
	must(os.Mkdir(target+"/sub", 0o755))
	must(v.publishErr(earlier, false))
	must(unix.Unmount(earlier, 0))
	must(unix.Mount(v.staging(), earlier, "", unix.MS_BIND, ""))
	_, err := r.NodePublishVolume(r.ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), TargetPath: peer, VolumeCapability: v.cap,
		VolumeContext: map[string]string{"csi-volmgr.dev/mount-propagation": "Bidirectional"},
	})
	must(err)
	for dir, shared := range map[string]bool{target: false, peer: true, earlier: true} {
		below(dir, func() {
			if mounted(v.staging()) != shared {
				t.Errorf("below %s: in the stage: %v, want %v", dir, !shared, shared)
			}
		})
	}
	below(peer, func() {
		if !mounted(target) {
			t.Error("what a pod shares does not reach the other pods")
		}
	})
	below(v.staging(), func() {
		if mounted(r.d.store.dataPath(v.id, typeDirectory)) {
			t.Error("what is mounted below the stage is in the data")
		}
	})
	must(v.unpublishErr(peer))
	must(v.unpublishErr(earlier))
	v.down()
}

// The second table of CSI 1.13 NodePublishVolume.
func TestSecondPublish(t *testing.T) {
	for _, test := range []struct {
		mode  csi.VolumeCapability_AccessMode_Mode
		other codes.Code
	}{
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, codes.FailedPrecondition},
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, codes.OK},
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, codes.FailedPrecondition},
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, codes.FailedPrecondition},
	} {
		t.Run(test.mode.String(), func(t *testing.T) {
			r := newRig(t)
			req := directoryReq("v")
			req.VolumeCapabilities[0] = fsCap("", test.mode)
			v := r.create(req)
			target := v.up()
			wantCode(t, "same target, same arguments", v.publishErr(target, false), codes.OK)
			if test.mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY {
				wantCode(t, "same target, read-only", v.publishErr(target, true), codes.AlreadyExists)
			}
			wantCode(t, "other target", v.publishErr(r.path("other"), false), test.other)
			if test.other != codes.OK {
				wantGone(t, r.path("other"))
				// The record of a mount that is gone must not be an obstacle.
				if err := unix.Unmount(target, 0); err != nil {
					t.Fatal(err)
				}
				wantCode(t, "other target, first one gone", v.publishErr(r.path("other"), false), codes.OK)
			}
		})
	}
}

func TestReaderOnlyModeCannotWrite(t *testing.T) {
	r := newRig(t)
	req := directoryReq("v")
	req.VolumeCapabilities[0] = fsCap("", csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY)
	target := r.create(req).up()
	if err := os.WriteFile(target+"/file", nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing = %v, want EROFS", err)
	}
}

func TestStageAndPublishInTheWrongOrder(t *testing.T) {
	for _, req := range []*csi.CreateVolumeRequest{directoryReq("d"), createReq("i", 16*mib, fsCap("", multi)), createReq("b", mib, blockCap(multi))} {
		t.Run(req.GetName(), func(t *testing.T) {
			r := newRig(t)
			v := r.create(req)
			target := r.path("target-" + v.id)
			wantCode(t, "publish before stage", v.publishErr(target, false), codes.FailedPrecondition)
			wantGone(t, target)
			wantCode(t, "unpublish before stage", v.unpublishErr(target), codes.OK)
			wantCode(t, "unstage before stage", v.unstageErr(), codes.OK)
			v.up()
			wantCode(t, "stage again", v.stageErr(), codes.OK)
			wantCode(t, "unstage while published", v.unstageErr(), codes.FailedPrecondition)
			_, err := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
			wantCode(t, "delete while published", err, codes.FailedPrecondition)
			wantCode(t, "unpublish", v.unpublishErr(target), codes.OK)
			wantCode(t, "unpublish again", v.unpublishErr(target), codes.OK)
			_, err = r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
			wantCode(t, "delete while staged", err, codes.FailedPrecondition)
			wantCode(t, "unstage", v.unstageErr(), codes.OK)
			wantCode(t, "unstage again", v.unstageErr(), codes.OK)
		})
	}
}

func TestNodeRefusesWhatItCannotDo(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	staged := r.create(createReq("staged", 16*mib, fsCap("", multi)))
	staged.up()
	stage := func(id, path string, c *csi.VolumeCapability) error {
		_, err := r.NodeStageVolume(r.ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: path, VolumeCapability: c})
		return err
	}
	group := fsCap("", multi)
	group.GetMount().VolumeMountGroup = "1000"
	os.Mkdir(r.path("dir"), 0o755)
	os.Symlink(r.path("dir"), r.path("link"))
	for _, test := range []struct {
		what string
		err  error
		want codes.Code
	}{
		{"stage of no volume", stage("lv-0000000000000000-0000000000000000", r.path("s"), v.cap), codes.NotFound},
		{"stage at a relative path", stage(v.id, "s", v.cap), codes.InvalidArgument},
		{"stage at a path with ..", stage(v.id, r.dir+"/x/../s", v.cap), codes.InvalidArgument},
		{"stage where no directory is", stage(v.id, r.path("s"), v.cap), codes.FailedPrecondition},
		{"stage through a symbolic link", stage(v.id, r.path("link", "s"), v.cap), codes.InvalidArgument},
		{"stage of a directory as a device", stage(v.id, r.path("dir"), blockCap(multi)), codes.FailedPrecondition},
		{"stage for many nodes", stage(v.id, r.path("dir"), fsCap("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)), codes.FailedPrecondition},
		{"stage as an unknown file system", stage(v.id, r.path("dir"), fsCap("zfs", multi)), codes.InvalidArgument},
		{"stage with a mount group", stage(v.id, r.path("dir"), group), codes.InvalidArgument},
		{"stage again with another capability", stage(staged.id, staged.staging(), fsCap("ext4", multi)), codes.AlreadyExists},
		{"stage elsewhere", stage(staged.id, r.path("dir"), staged.cap), codes.FailedPrecondition},
		{"publish below no directory", staged.publishErr(r.path("no", "target"), false), codes.FailedPrecondition},
		{"publish at a relative path", staged.publishErr("target", false), codes.InvalidArgument},
		{"unpublish of no volume", vol{r: r, id: "lv-1"}.unpublishErr(r.path("t")), codes.NotFound},
		{"unstage of no volume", vol{r: r, id: "lv-1"}.unstageErr(), codes.NotFound},
		{"expand where it is not", staged.nodeExpandErr(r.path("dir")), codes.NotFound},
	} {
		wantCode(t, test.what, test.err, test.want)
	}
	wantGone(t, r.path("no"))
	_, err := r.NodeExpandVolume(r.ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: staged.id, VolumePath: staged.staging(), CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
	})
	wantCode(t, "expand beyond the image", err, codes.OutOfRange)
}

func TestMountFlagsArePassedOnAndCheckedByTheKernel(t *testing.T) {
	r := newRig(t)
	c := fsCap("", multi)
	c.GetMount().MountFlags = []string{"noatime", "nosuid"}
	target := r.create(createReq("good", 16*mib, c)).up()
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil || st.Flags&unix.ST_NOATIME == 0 || st.Flags&unix.ST_NOSUID == 0 {
		t.Errorf("statfs flags %#x, %v, want noatime and nosuid", st.Flags, err)
	}
	c = fsCap("", multi)
	c.GetMount().MountFlags = []string{"no-such-option"}
	wantCode(t, "stage with an option that xfs does not have", r.create(createReq("bad", 16*mib, c)).stageErr(), codes.InvalidArgument)
	c = fsCap("ext4", multi)
	c.GetMount().MountFlags = []string{"errors=panic"}
	wantCode(t, "stage with an option that could end the node", r.create(createReq("panic", 16*mib, c)).stageErr(), codes.InvalidArgument)
	c = fsCap("", multi)
	c.GetMount().MountFlags = []string{"logdev=/dev/sda"}
	wantCode(t, "stage with an option that names another device", r.create(createReq("log", 16*mib, c)).stageErr(), codes.InvalidArgument)
}

func TestForeignMountIsLeftAlone(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	if err := v.stageErr(); err != nil {
		t.Fatal(err)
	}
	foreign := r.path("foreign")
	if err := errors.Join(os.Mkdir(foreign, 0o755), unix.Mount("tmpfs", foreign, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(foreign, 0)
	wantCode(t, "unpublish what is not ours", v.unpublishErr(foreign), codes.FailedPrecondition)
	wantCode(t, "publish over what is not ours", v.publishErr(foreign, false), codes.FailedPrecondition)
	_, err := r.NodeStageVolume(r.ctx, &csi.NodeStageVolumeRequest{
		VolumeId: r.create(directoryReq("w")).id, StagingTargetPath: foreign, VolumeCapability: v.cap,
	})
	wantCode(t, "stage over what is not ours", err, codes.FailedPrecondition)
	if info, err := r.d.mounts.Look(r.ctx, foreign); err != nil || info.Layers != 1 {
		t.Errorf("foreign mount shows %+v, %v, want one layer", info, err)
	}
}

func TestUnpublishRemovesNoFileWithContent(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", mib, blockCap(multi)))
	target := v.up()
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, target, "precious")
	wantCode(t, "unpublish", v.unpublishErr(target), codes.FailedPrecondition)
	wantFile(t, target, "precious")
	if err := os.Truncate(target, 0); err != nil {
		t.Fatal(err)
	}
}

func TestSecondCallInFlightIsAborted(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	release, err := r.d.locks.tryLock(lockVolume(v.id), lockVolumeName("new"), lockSnapshotName("snap"))
	if err != nil {
		t.Fatal(err)
	}
	_, deleteErr := r.DeleteVolume(r.ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	_, expandErr := r.ControllerExpandVolume(r.ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}})
	_, createErr := r.CreateVolume(r.ctx, directoryReq("new"))
	_, againErr := r.CreateVolume(r.ctx, directoryReq("v"))
	_, snapErr := r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
	for what, err := range map[string]error{
		"stage": v.stageErr(), "publish": v.publishErr(r.path("t"), false), "unpublish": v.unpublishErr(r.path("t")),
		"unstage": v.unstageErr(), "node expand": v.nodeExpandErr(r.path("t")), "delete": deleteErr,
		"expand": expandErr, "create": createErr, "create again": againErr, "snapshot": snapErr,
	} {
		wantCode(t, what, err, codes.Aborted)
	}
	release()
	wantCode(t, "stage when the other call is over", v.stageErr(), codes.OK)
}

func TestStats(t *testing.T) {
	r := newRig(t)
	stats := func(id, path string) (*csi.NodeGetVolumeStatsResponse, error) {
		return r.NodeGetVolumeStats(r.ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
	}
	image := r.create(createReq("image", 64*mib, fsCap("", multi)))
	target := image.up()
	for _, path := range []string{target, image.staging()} {
		resp, err := stats(image.id, path)
		if err != nil || len(resp.GetUsage()) != 2 {
			t.Fatalf("stats at %s = %v, %v", path, resp, err)
		}
		b := resp.GetUsage()[0]
		if b.GetUnit() != csi.VolumeUsage_BYTES || b.GetTotal() != statfsTotal(t, target) || b.GetUsed()+b.GetAvailable() > b.GetTotal() {
			t.Errorf("stats at %s = %v", path, b)
		}
	}
	block := r.create(createReq("block", 8*mib, blockCap(multi)))
	resp, err := stats(block.id, block.up())
	if err != nil || len(resp.GetUsage()) != 1 || resp.GetUsage()[0].GetTotal() != 8*mib {
		t.Errorf("stats of a device = %v, %v, want its size", resp, err)
	}
	_, err = stats(image.id, r.path("elsewhere"))
	wantCode(t, "stats where the volume is not", err, codes.NotFound)
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	_, err = stats(image.id, target)
	wantCode(t, "stats of a target whose mount is gone", err, codes.NotFound)
}

func inlineReq(id, target string, attributes map[string]string) *csi.NodePublishVolumeRequest {
	attributes["csi.storage.k8s.io/ephemeral"] = "true"
	attributes["csi.storage.k8s.io/pod.name"] = "pod"
	return &csi.NodePublishVolumeRequest{
		VolumeId: id, TargetPath: target, VolumeContext: attributes,
		VolumeCapability: fsCap("", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
	}
}

const inlineID = "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestInlineVolumeLivesFromPublishToUnpublish(t *testing.T) {
	for _, kind := range []string{"image", "directory"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			target := r.path("target")
			req := inlineReq(inlineID, target, map[string]string{"type": kind, "size": "32Mi"})
			for range 2 {
				if _, err := r.NodePublishVolume(r.ctx, req); err != nil {
					t.Fatal(err)
				}
			}
			mustWrite(t, target+"/file", "text")
			if kind == "image" {
				wantSize(t, target, 32*mib)
			}
			if list, err := r.ListVolumes(r.ctx, &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 0 {
				t.Errorf("ListVolumes = %v, %v, want no inline volume", list, err)
			}
			r.restart()
			wantFile(t, target+"/file", "text")
			for range 2 {
				wantCode(t, "unpublish", vol{r: r, id: inlineID}.unpublishErr(target), codes.OK)
			}
			wantGone(t, target)
			for _, sub := range []string{recordsDir, attachedDir, dataDir} {
				if left, err := os.ReadDir(r.path("state", sub)); err != nil || len(left) > 0 {
					t.Errorf("left in %s: %v, %v", sub, left, err)
				}
			}
		})
	}
}

func TestInlineVolumeRefuses(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	for what, change := range map[string]func(*csi.NodePublishVolumeRequest){
		"bad size":          func(q *csi.NodePublishVolumeRequest) { q.VolumeContext["size"] = "much" },
		"negative size":     func(q *csi.NodePublishVolumeRequest) { q.VolumeContext["size"] = "-1Gi" },
		"bad type":          func(q *csi.NodePublishVolumeRequest) { q.VolumeContext["type"] = "tape" },
		"unknown attribute": func(q *csi.NodePublishVolumeRequest) { q.VolumeContext["siez"] = "1Gi" },
		"raw block":         func(q *csi.NodePublishVolumeRequest) { q.VolumeCapability = blockCap(multi) },
		"persistent volume": func(q *csi.NodePublishVolumeRequest) { q.VolumeId = v.id },
	} {
		req := inlineReq(inlineID, r.path("target"), map[string]string{})
		change(req)
		_, err := r.NodePublishVolume(r.ctx, req)
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s = %v, want INVALID_ARGUMENT", what, err)
		}
		wantGone(t, r.path("target"))
	}
}

// A pod would write to a plain directory left behind as if it were the volume.
func TestFailedPublishLeavesNoTarget(t *testing.T) {
	r := newRig(t)
	req := inlineReq(inlineID, r.path("target"), map[string]string{"size": "16Mi"})
	req.VolumeCapability.GetMount().MountFlags = []string{"no-such-option"}
	_, err := r.NodePublishVolume(r.ctx, req)
	wantCode(t, "publish with a bad option", err, codes.InvalidArgument)
	wantGone(t, r.path("target"))
	req.VolumeCapability.GetMount().MountFlags = nil
	if _, err := r.NodePublishVolume(r.ctx, req); err != nil {
		t.Errorf("publish without it: %v", err)
	}
	wantCode(t, "unpublish", vol{r: r, id: inlineID}.unpublishErr(r.path("target")), codes.OK)
}

// Attacks: C24.
func TestDirectoryModeIsNotUpToTheUmask(t *testing.T) {
	r := newRig(t)
	defer unix.Umask(unix.Umask(0o077))
	target := r.create(directoryReq("v")).up()
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("volume is %v, %v, want 0755", info.Mode(), err)
	}
}

func TestReadOnlyInlineVolumeIsReadOnly(t *testing.T) {
	for _, kind := range []string{"image", "directory"} {
		r := newRig(t)
		req := inlineReq(inlineID, r.path("target"), map[string]string{"type": kind, "size": "16Mi"})
		req.Readonly = true
		if _, err := r.NodePublishVolume(r.ctx, req); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.path("target", "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing = %v, want EROFS", err)
		}
		wantCode(t, "unpublish", vol{r: r, id: inlineID}.unpublishErr(r.path("target")), codes.OK)
	}
}
