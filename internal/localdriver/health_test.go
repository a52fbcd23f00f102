package localdriver

import (
	"errors"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// wantTrouble checks what the driver reports wrong with a volume; "" is nothing.
func (r *rig) wantTrouble(what, id string, status csi.VolumeHealthErrorType, reason string) {
	r.t.Helper()
	resp, err := r.ControllerGetVolumeHealth(r.ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
	found := resp.GetVolumeHealth().GetHealthStatuses()
	if err != nil || resp.GetVolumeHealth().GetVolumeId() != id {
		r.t.Errorf("%s: %v, %v", what, resp, err)
		return
	}
	if reason == "" {
		if len(found) > 0 {
			r.t.Errorf("%s: %v, want nothing", what, found)
		}
		return
	}
	if len(found) != 1 || found[0].GetStatus() != status || found[0].GetReason() != reason || found[0].GetMessage() == "" {
		r.t.Errorf("%s: %v, want %s %s", what, found, status, reason)
	}
}

// The health of a volume is that of its image or directory, and of its record.
func TestHealthOfAVolumeIsThatOfItsBytes(t *testing.T) {
	const loss, inaccessible = csi.VolumeHealthErrorType_DATA_LOSS, csi.VolumeHealthErrorType_INACCESSIBLE
	r := newRig(t)
	image, device := r.create(createReq("image", 32*mib, fsCap("ext4", multi))), r.create(createReq("device", 32*mib, blockCap(multi)))
	directory := r.create(directoryReq("directory"))
	for what, v := range map[string]vol{"image": image, "device": device, "directory": directory} {
		r.wantTrouble("new: "+what, v.id, 0, "")
		v.up()
		r.wantTrouble("in use: "+what, v.id, 0, "")
		v.down()
	}
	for _, c := range []struct {
		what   string
		v      vol
		kind   string
		hurt   func(path string) error
		status csi.VolumeHealthErrorType
		reason string
	}{
		{"missing", image, typeImage, nil, loss, "ImageMissing"},
		{"missing", device, typeImage, nil, loss, "ImageMissing"},
		{"missing", directory, typeDirectory, nil, loss, "DirectoryMissing"},
		{"truncated", image, typeImage, func(path string) error { return os.WriteFile(path, make([]byte, 16*mib), 0o600) }, loss, "ImageTruncated"},
		{"a link", image, typeImage, func(path string) error { return os.Symlink(r.dir, path) }, inaccessible, "ImageUnreadable"},
		{"another file", image, typeImage, func(path string) error { return os.Mkdir(path, 0o700) }, inaccessible, "ImageUnreadable"},
		{"another file", directory, typeDirectory, func(path string) error { return unix.Mkfifo(path, 0o600) }, inaccessible, "DirectoryUnreadable"},
	} {
		path := r.d.store.dataPath(c.v.id, c.kind)
		if err := os.Rename(path, path+".aside"); err != nil {
			t.Fatal(err)
		}
		if c.hurt != nil {
			if err := c.hurt(path); err != nil {
				t.Fatal(err)
			}
		}
		r.wantTrouble(c.kind+": "+c.what, c.v.id, c.status, c.reason)
		if err := errors.Join(os.RemoveAll(path), os.Rename(path+".aside", path)); err != nil {
			t.Fatal(err)
		}
		r.wantTrouble(c.kind+" again", c.v.id, 0, "")
	}
}

// A volume that the driver has grown is well, though its image grows only when it is staged.
func TestAnImageThatIsToGrowIsWhole(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap("ext4", multi)))
	v.up()
	v.down()
	known, err := r.d.mustVolume(v.id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.reserve(known, 64*mib); err != nil {
		t.Fatal(err)
	}
	r.wantTrouble("not grown yet", v.id, 0, "")
}

// A volume whose record cannot be read is reported as inaccessible; a request without a volume is
// an error.
func TestHealthOfAVolumeByItsRecord(t *testing.T) {
	r := newRig(t)
	v := r.create(directoryReq("v"))
	r.stop()
	path := r.path("state", recordsDir, v.id+".json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, path, "{")
	r.start()
	r.wantTrouble("an unreadable record", v.id, csi.VolumeHealthErrorType_INACCESSIBLE, "RecordUnreadable")
	r.stop()
	mustWrite(t, path, string(good))
	r.start()
	_, err = r.ControllerGetVolumeHealth(r.ctx, &csi.ControllerGetVolumeHealthRequest{})
	wantCode(t, "no id", err, codes.InvalidArgument)
	_, err = r.ControllerGetVolumeHealth(r.ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: "lv-1"})
	wantCode(t, "no volume", err, codes.NotFound)
}

// A truncated image is not filled up with zeros: a file system on it would be mounted, and its files be damaged.
func TestATruncatedImageIsLeftAsItIs(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap("ext4", multi)))
	v.up()
	v.down()
	path := r.d.store.dataPath(v.id, typeImage)
	if err := os.Truncate(path, 16*mib); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "stage", v.stageErr(), codes.DataLoss)
	_, err := r.ControllerExpandVolume(r.ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 * mib},
	})
	wantCode(t, "expand", err, codes.DataLoss)
	if info, err := os.Stat(path); err != nil || info.Size() != 16*mib {
		t.Errorf("the image has %d bytes, %v", info.Size(), err)
	}
	r.wantTrouble("truncated", v.id, csi.VolumeHealthErrorType_DATA_LOSS, "ImageTruncated")
	if err := os.Truncate(path, 32*mib); err != nil { // so that the test's cleaning can go on
		t.Fatal(err)
	}
}
