package csistrict

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dataDir returns the directory of a volume's files.
func (d *Driver) dataDir(id string) string {
	return filepath.Join(d.cfg.StateDir, "volumes", pathName(id), "data")
}

// image returns the file behind a raw block volume.
func (d *Driver) image(id string) string {
	return filepath.Join(d.cfg.StateDir, "volumes", pathName(id), "image")
}

// pathName returns an id as one element of a path.
func pathName(id string) string { return strings.NewReplacer("/", "_", "..", "_").Replace(id) }

// isMount reports whether path is the root of a mount.
func isMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// bindDir mounts source at target, a directory that it makes, unless something
// is mounted there.
func bindDir(source, target string) error {
	if isMount(target) {
		return nil
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return bind(source, target)
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

// bindFile mounts a device at target, a file that it makes.
func bindFile(device, target string) error {
	if isMount(target) {
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	return bind(device, target)
}

func readOnly(target string) error {
	if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// unmount removes one mount from path, like a driver that made one.
func unmount(path string) error {
	if !isMount(path) {
		return nil
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// remove removes what publishing made at target.
func remove(target string) error {
	if err := unmount(target); err != nil || isMount(target) {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// loops opens the loop devices of the image at path.
func loops(path string) (devices []string, err error) {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		// A device that was detached meanwhile does not count.
		if b, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(b)) == path {
			devices = append(devices, "/dev/"+strings.Split(name, "/")[3])
		}
	}
	return devices, nil
}

// loopFor returns the loop device of the image, which it attaches if need be.
func loopFor(path string) (string, error) {
	if have, err := loops(path); err != nil || len(have) > 0 {
		return append(have, "")[0], err
	}
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer image.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a free loop device: %w", err)
		}
		device := fmt.Sprintf("/dev/loop%d", n)
		err = onDevice(device, func(fd int) error {
			config := unix.LoopConfig{Fd: uint32(image.Fd())}
			copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
			return unix.IoctlLoopConfigure(fd, &config)
		})
		if !errors.Is(err, unix.EBUSY) { // another process took it first
			return device, err
		}
	}
}

func onDevice(device string, f func(fd int) error) error {
	dev, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := f(int(dev.Fd())); err != nil {
		return fmt.Errorf("%s: %w", device, err)
	}
	return nil
}

// eachLoop makes an ioctl on each loop device of the image at path.
func eachLoop(path string, request uint) error {
	devices, err := loops(path)
	for _, device := range devices {
		err = errors.Join(err, onDevice(device, func(fd int) error { return unix.IoctlSetInt(fd, request, 0) }))
	}
	return err
}
