package mount

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sizes are the sizes in bytes of what is at a path. A field is 0 if the size is unknown,
// or belongs to more than that path: for a directory of a larger file system, or a file
// system without a device.
type Sizes struct {
	Device, FileSystem int64
}

// sectorBytes is the unit of block device sizes in sysfs, independent of the device.
const sectorBytes = 512

// Size returns the size of the block device or the file system at path. It asks the
// storage, so it may take until ctx ends.
func (k *Kernel) Size(ctx context.Context, path string) (Sizes, error) {
	info, err := k.Look(ctx, path)
	if err != nil {
		return Sizes{}, err
	}
	if info.BlockDevice {
		return Sizes{Device: deviceBytes(info.Dev)}, nil
	}
	if !info.Mounted {
		return Sizes{}, nil
	}
	entries, err := k.List(ctx, path)
	if err != nil {
		return Sizes{}, err
	}
	slices.Reverse(entries)
	top := slices.IndexFunc(entries, func(e Entry) bool { return e.Path == path })
	if top < 0 || entries[top].Root != "/" {
		return Sizes{}, nil
	}
	s := Sizes{Device: deviceBytes(entries[top].Dev)}
	if s.Device == 0 {
		return Sizes{}, nil
	}
	s.FileSystem, err = askAway(ctx, k, callSize, request{Path: path}, func() (int64, error) { return k.total(path) })
	return s, wrap(err, "statfs %s", path)
}

// deviceBytes returns the size of a block device (major<<32|minor); 0 if there is none.
func deviceBytes(dev uint64) int64 {
	text, err := os.ReadFile("/sys/dev/block/" + DeviceText(dev) + "/size")
	if err != nil {
		return 0
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return sectors * sectorBytes
}

// total returns the size in bytes of the file system at path.
func (k *Kernel) total(path string) (int64, error) {
	st, err := k.statfs(path)
	return int64(st.Blocks) * int64(st.Frsize), err //nolint:gosec // no file system is that large
}

// Statfs returns how full the file system at path is (statfs(2)). It asks the storage, so it
// may take until ctx ends.
func (k *Kernel) Statfs(ctx context.Context, path string) (unix.Statfs_t, error) {
	st, err := askAway(ctx, k, callStatfs, request{Path: path}, func() (unix.Statfs_t, error) { return k.statfs(path) })
	return st, wrap(err, "statfs %s", path)
}

// statfs asks the storage behind the mount at path.
func (k *Kernel) statfs(path string) (st unix.Statfs_t, err error) {
	fd, err := k.openTarget(path)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, os.NewSyscallError("statfs", unix.Fstatfs(fd, &st))
}
