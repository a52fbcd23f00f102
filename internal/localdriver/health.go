package localdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// ControllerGetVolumeHealth reports problems with the data of a volume, from its record and its
// image or directory (CSI 1.13 ControllerGetVolumeHealth). It answers NOT_FOUND if there is no such
// volume. The kernel reports errors of the file system in an image, on the node.
func (s *controllerServer) ControllerGetVolumeHealth(_ context.Context,
	req *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, invalid("volume_id is missing")
	}
	health := &csi.VolumeHealth{VolumeId: id}
	v, err := s.driver.mustVolume(id)
	switch {
	case errors.Is(err, errUnreadable):
		health.HealthStatuses = entry(csi.VolumeHealthErrorType_INACCESSIBLE, "RecordUnreadable", err.Error())
	case err != nil:
		return nil, err
	default:
		health.HealthStatuses = s.driver.findProblem(v)
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// entry returns a list with one problem.
func entry(status csi.VolumeHealthErrorType, reason, message string) []*csi.VolumeHealth_VolumeHealthEntry {
	return []*csi.VolumeHealth_VolumeHealthEntry{{Status: status, Reason: reason, Message: message}}
}

// findProblem says what is wrong with the data of v, or returns nil. An image may be smaller than
// the volume, because it grows at the next stage, but never smaller than its file system.
func (d *Driver) findProblem(v volume) []*csi.VolumeHealth_VolumeHealthEntry {
	path := d.store.dataPath(v.ID, v.Type)
	name, mode, readFirst := "Image", fs.FileMode(0), firstByte
	if v.Type == typeDirectory {
		name, mode, readFirst = "Directory", fs.ModeDir, firstEntry
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != mode {
		err = fmt.Errorf("%s has type %s, want %s", path, info.Mode().Type(), mode)
	}
	if err == nil {
		err = tryRead(path, readFirst)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return entry(csi.VolumeHealthErrorType_DATA_LOSS, name+"Missing", fmt.Sprintf(
			"%s does not exist; pods that have the volume mounted keep its data until it is unmounted", path))
	case err != nil:
		return entry(csi.VolumeHealthErrorType_INACCESSIBLE, name+"Unreadable", err.Error())
	case mode == 0 && info.Size() < v.FSBytes:
		return entry(csi.VolumeHealthErrorType_DATA_LOSS, "ImageTruncated", fmt.Sprintf(
			"image %s has %d bytes, the file system in it %d", path, info.Size(), v.FSBytes))
	}
	return nil
}

// checkWhole returns DATA_LOSS if the image at path is smaller than the file system in it. Enlarged, it would
// have zeros in place of what was lost, and no program could tell.
func checkWhole(v volume, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return noData(v.ID, err)
	}
	if info.Size() < v.FSBytes {
		return refuse(codes.DataLoss, "image %s has %d bytes, the file system in it %d: it was truncated, and is left as "+
			"it is", path, info.Size(), v.FSBytes)
	}
	return nil
}

// growData enlarges the image of v to the size of the volume.
func (d *Driver) growData(v volume) error {
	path := d.store.dataPath(v.ID, v.Type)
	if err := checkWhole(v, path); err != nil {
		return err
	}
	if err := growImage(path, v.CapacityBytes); err != nil {
		return noData(v.ID, err)
	}
	return nil
}

// tryRead calls first with the file or directory at path, which may be empty.
func tryRead(path string, first func(*os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := first(f); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func firstByte(f *os.File) error {
	_, err := f.Read(make([]byte, 1))
	return err
}

func firstEntry(dir *os.File) error {
	_, err := dir.Readdirnames(1)
	return err
}
