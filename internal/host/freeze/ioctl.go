package freeze

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// The ioctls (linux/fs.h).
const (
	iocFreeze = 0xc0045877 // FIFREEZE
	iocThaw   = 0xc0045878 // FITHAW
)

// The names of the helper's calls.
const (
	callFreeze = "freeze"
	callThaw   = "thaw"
)

// Errors of a freeze.
var (
	// ErrBusy means that another program has already frozen the file system.
	ErrBusy = errors.New("another program has frozen it")
	// ErrUnable means that the kernel cannot freeze the file system, such as nfs, tmpfs
	// and FUSE.
	ErrUnable = errors.New("its file system cannot be frozen")
	// ErrNever means that a freeze would stop more than the volume.
	ErrNever = errors.New("its file system is not the volume's alone")
)

// request says what to freeze or thaw.
type request struct {
	Path string `json:"path"`
	// Device is the number (major:minor) that the file system at Path must have; "" for
	// any. Another file system may have been mounted at the path meanwhile.
	Device string `json:"device,omitempty"`
}

// Helper returns this package's calls for a helper process. All of them may hang with the
// storage, because a freeze first writes back.
func Helper() isolate.Service {
	return isolate.Service{
		Handlers: map[string]isolate.Handler{callFreeze: doFreeze, callThaw: doThaw},
		Errors:   []error{ErrBusy, ErrUnable},
	}
}

func doFreeze(_ context.Context, text []byte) ([]byte, error) {
	dir, err := open(text)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	switch err := ioctl(dir, iocFreeze); {
	case errors.Is(err, unix.EBUSY):
		return nil, ErrBusy
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY):
		return nil, ErrUnable
	case err != nil:
		return nil, fmt.Errorf("ioctl FIFREEZE: %w", err)
	}
	return nil, nil
}

// doThaw ends a freeze. EINVAL means that the file system is not frozen.
func doThaw(_ context.Context, text []byte) ([]byte, error) {
	dir, err := open(text)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := ioctl(dir, iocThaw); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("ioctl FITHAW: %w", err)
	}
	return nil, nil
}

// open opens the directory of a request and checks its device.
func open(text []byte) (*os.File, error) {
	var r request
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(r.Path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, errors.Join(&os.PathError{Op: "fstat", Path: r.Path, Err: err}, dir.Close())
	}
	if dev := mount.DeviceText(mount.DeviceOf(st.Dev)); r.Device != "" && dev != r.Device {
		return nil, errors.Join(fmt.Errorf("at %s is device %s: expected %s", r.Path, dev, r.Device), dir.Close())
	}
	return dir, nil
}

func ioctl(f *os.File, call uint) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(call), 0); errno != 0 {
		return errno
	}
	return nil
}
