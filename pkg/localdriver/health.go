package localdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// ControllerGetVolumeHealth says what is wrong with the bytes of a volume, by a look at its image or
// directory and its record (CSI 1.13 ControllerGetVolumeHealth); NOT_FOUND where there is no such
// volume. Errors of the file system in an image are the kernel's to tell, on the node.
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
		health.HealthStatuses = trouble(csi.VolumeHealthErrorType_INACCESSIBLE, "RecordUnreadable", err.Error())
	case err != nil:
		return nil, err
	case v.Type == typeImage:
		health.HealthStatuses = s.driver.imageTrouble(v)
	default:
		health.HealthStatuses = s.driver.directoryTrouble(v)
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// trouble is the one thing that is wrong with a volume.
func trouble(status csi.VolumeHealthErrorType, reason, message string) []*csi.VolumeHealth_VolumeHealthEntry {
	return []*csi.VolumeHealth_VolumeHealthEntry{{Status: status, Reason: reason, Message: message}}
}

// imageTrouble says what is wrong with the image of v; nil for nothing. An image may be smaller than the volume, which
// grows when it is staged next, and never smaller than the file system in it.
func (d *Driver) imageTrouble(v volume) []*csi.VolumeHealth_VolumeHealthEntry {
	path := d.store.dataPath(v.ID, v.Type)
	info, err := os.Lstat(path)
	if errors.Is(err, errNotExist) {
		return trouble(csi.VolumeHealthErrorType_DATA_LOSS, "ImageMissing", fmt.Sprintf(
			"there is no image %s; what has the volume mounted keeps its data until it is unmounted", path))
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file, but %s", path, info.Mode().Type())
	}
	if err == nil {
		err = readable(path)
	}
	switch {
	case err != nil:
		return trouble(csi.VolumeHealthErrorType_INACCESSIBLE, "ImageUnreadable", err.Error())
	case info.Size() < v.FSBytes:
		return trouble(csi.VolumeHealthErrorType_DATA_LOSS, "ImageTruncated", fmt.Sprintf(
			"image %s has %d bytes, the file system in it %d", path, info.Size(), v.FSBytes))
	}
	return nil
}

// directoryTrouble says what is wrong with the directory of v; nil for nothing.
func (d *Driver) directoryTrouble(v volume) []*csi.VolumeHealth_VolumeHealthEntry {
	path := d.store.dataPath(v.ID, v.Type)
	info, err := os.Lstat(path)
	if errors.Is(err, errNotExist) {
		return trouble(csi.VolumeHealthErrorType_DATA_LOSS, "DirectoryMissing", fmt.Sprintf("there is no directory %s", path))
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory, but %s", path, info.Mode().Type())
	}
	if err == nil {
		err = listable(path)
	}
	if err != nil {
		return trouble(csi.VolumeHealthErrorType_INACCESSIBLE, "DirectoryUnreadable", err.Error())
	}
	return nil
}

// readable reads the first byte of a file.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// listable reads the first entry of a directory.
func listable(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
