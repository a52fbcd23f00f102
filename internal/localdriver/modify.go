package localdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// paramReadAhead is the only mutable parameter: the kernel's read-ahead on an image's device, in
// KiB.
const paramReadAhead = "readAheadKB"

// The limits of paramReadAhead.
const (
	leastReadAhead = 4
	mostReadAhead  = 16 << 10
)

// parseMutable parses mutable_parameters for a volume of the given kind; 0 means the kernel's
// default.
func parseMutable(params map[string]string, kind string) (readAheadKB int, err error) {
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if key != paramReadAhead {
			return 0, invalid("mutable parameter %q: expected %s", key, paramReadAhead)
		}
	}
	text, ok := params[paramReadAhead]
	if !ok {
		return 0, nil
	}
	if kind != typeImage {
		return 0, invalid("mutable parameter %s: a volume of type %s has no device of its own", paramReadAhead, kind)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < leastReadAhead || n > mostReadAhead {
		return 0, invalid("mutable parameter %s: found %q, expected a number from %d to %d", paramReadAhead, text,
			leastReadAhead, mostReadAhead)
	}
	return n, nil
}

// ControllerModifyVolume changes a volume, even if it is in use (CSI 1.13 ControllerModifyVolume).
// Parameters that the request does not contain stay unchanged.
func (s *controllerServer) ControllerModifyVolume(_ context.Context, req *csi.ControllerModifyVolumeRequest,
) (*csi.ControllerModifyVolumeResponse, error) {
	if req.GetVolumeId() == "" || len(req.GetMutableParameters()) == 0 {
		return nil, invalid("volume_id or mutable_parameters is missing")
	}
	d := s.driver
	release, err := d.locks.tryLock(lockVolume(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := d.mustVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	n, err := parseMutable(req.GetMutableParameters(), v.Type)
	if err != nil {
		return nil, err
	}
	v.ReadAheadKB = n
	if err := d.store.putVolume(v); err != nil {
		return nil, err
	}
	devs, err := findLoops(d.store.dataPath(v.ID, v.Type))
	if err != nil {
		return nil, err
	}
	defer closeLoops(devs)
	for _, dev := range devs {
		err = errors.Join(err, dev.tune(v))
	}
	if err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// tune applies the volume's mutable parameters to the device. They are lost when it is detached.
func (d *loopDevice) tune(v volume) error {
	if v.ReadAheadKB == 0 {
		return nil
	}
	const sectorsPerKB = 2 // the ioctl counts sectors of 512 bytes, whatever the device's are
	if err := unix.IoctlSetInt(int(d.Fd()), unix.BLKRASET, v.ReadAheadKB*sectorsPerKB); err != nil {
		return fmt.Errorf("set the read-ahead of %s: %w", d.path, err)
	}
	return nil
}
