package localdriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// loopAttempts limits how often a free loop device is requested, because another program may attach
// it first.
const loopAttempts = 64

// sectorBytes is the logical sector size of every loop device. By default the kernel chooses what
// direct I/O to the image needs, which changes to 4 KiB when xfs shares the image's blocks with a
// snapshot: a file system made with smaller sectors could then no longer be mounted.
const sectorBytes = 4 << 10

// loopDevice is a loop device that this process has open.
type loopDevice struct {
	*os.File
	path string // /dev/loopN
}

// loopUse says how to attach a loop device.
type loopUse struct {
	// ReadOnly makes the device refuse writes.
	ReadOnly bool
	// Autoclear makes the kernel detach the device with its last user. Use it if a mount keeps the
	// device open, but not for a device file that no process has open yet.
	Autoclear bool
}

// attachLoop attaches image to a free loop device, which it returns open. Close it once something
// else keeps the device open, or, with u.Autoclear, to detach it. The device uses direct I/O, so
// that data is not cached twice; the kernel falls back to buffered I/O if the file system below
// does not support it.
func attachLoop(image *os.File, u loopUse) (*loopDevice, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for range loopAttempts {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		path := fmt.Sprintf("/dev/loop%d", n)
		dev, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(image.Fd()), Size: sectorBytes}
		config.Info.Flags = unix.LO_FLAGS_DIRECT_IO
		if u.ReadOnly {
			config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
		}
		if u.Autoclear {
			config.Info.Flags |= unix.LO_FLAGS_AUTOCLEAR
		}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], image.Name())
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return &loopDevice{File: dev, path: path}, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s to %s: %w", image.Name(), path, err)
		}
	}
	return nil, fmt.Errorf("attach %s: no loop device stayed free in %d attempts", image.Name(), loopAttempts)
}

// findLoops opens every loop device whose backing file is the image at path. It compares device and
// inode numbers from the kernel; the name in sysfs only avoids opening other loop devices. The
// caller closes them.
func findLoops(path string) ([]*loopDevice, error) {
	var want unix.Stat_t
	if err := unix.Stat(path, &want); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var found []*loopDevice
	for _, name := range names {
		backing, err := os.ReadFile(name)
		if err != nil || filepath.Base(strings.TrimSpace(string(backing))) != filepath.Base(path) {
			continue // detached meanwhile, or of another image
		}
		devPath := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(name)))
		dev, err := os.Open(devPath)
		if err != nil {
			closeLoops(found)
			return nil, err
		}
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err != nil || info.Device != want.Dev || info.Inode != want.Ino {
			dev.Close()
			if err != nil && !errors.Is(err, unix.ENXIO) {
				closeLoops(found)
				return nil, fmt.Errorf("ask %s for its backing file: %w", devPath, err)
			}
			continue
		}
		found = append(found, &loopDevice{File: dev, path: devPath})
	}
	return found, nil
}

// isAttached reports whether the image at path is attached to a loop device.
func isAttached(path string) (bool, error) {
	devs, err := findLoops(path)
	closeLoops(devs)
	return len(devs) > 0, err
}

// readOnly reports whether the device refuses writes.
func (d *loopDevice) readOnly() (bool, error) {
	info, err := unix.IoctlLoopGetStatus64(int(d.Fd()))
	if err != nil {
		return false, fmt.Errorf("ask %s for its flags: %w", d.path, err)
	}
	return info.Flags&unix.LO_FLAGS_READ_ONLY != 0, nil
}

// refresh updates the device after its backing file has grown.
func (d *loopDevice) refresh() error {
	if err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("enlarge %s: %w", d.path, err)
	}
	return nil
}

// detach detaches the device. If a process still has it open, the kernel detaches it when the last
// one closes it.
func (d *loopDevice) detach() error {
	err := unix.IoctlSetInt(int(d.Fd()), unix.LOOP_CLR_FD, 0)
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", d.path, err)
	}
	return nil
}

func closeLoops(devs []*loopDevice) {
	for _, d := range devs {
		d.Close()
	}
}

// detachLoops detaches every loop device of the image at path.
func detachLoops(path string) error {
	devs, err := findLoops(path)
	if err != nil {
		return err
	}
	defer closeLoops(devs)
	for _, d := range devs {
		err = errors.Join(err, d.detach())
	}
	return err
}

// loopFor returns the loop device of the image at path for a raw block volume, and attaches one if
// there is none. Read-only and writable uses have separate devices, because a read-only mount of a
// device file does not prevent writes to the device.
func loopFor(path string, readOnly bool) (*loopDevice, error) {
	devs, err := findLoops(path)
	if err != nil {
		return nil, err
	}
	var match *loopDevice
	for _, d := range devs {
		ro, roErr := d.readOnly()
		if roErr != nil {
			err = errors.Join(err, roErr)
		} else if match == nil && ro == readOnly {
			match = d
			continue
		}
		d.Close()
	}
	if match != nil || err != nil {
		return match, err
	}
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	image, err := os.OpenFile(path, flag|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	return attachLoop(image, loopUse{ReadOnly: readOnly})
}

// adopt takes over a device that was left attached, if no process has it mounted or open
// exclusively, and sets autoclear.
func (d *loopDevice) adopt() (*loopDevice, error) {
	alone, err := os.OpenFile(d.path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, refuse(codes.Aborted, "%s is in use: mounted elsewhere, or by a program of a driver that was killed",
			d.path)
	}
	if err != nil {
		return nil, err
	}
	defer alone.Close() // a mount also opens the device exclusively
	info, err := unix.IoctlLoopGetStatus64(int(alone.Fd()))
	if err == nil {
		info.Flags |= unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopSetStatus64(int(alone.Fd()), info)
	}
	if err != nil {
		return nil, fmt.Errorf("take over %s: %w", d.path, err)
	}
	dev, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	taken := &loopDevice{File: dev, path: d.path}
	if err := taken.refresh(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return taken, nil
}
