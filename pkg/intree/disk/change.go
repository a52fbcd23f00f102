package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrInUse means that a user has a disk for itself.
var ErrInUse = errors.New("the disk is in use: mounted in some mount namespace, or part of another device")

// Free hands over to the disk what the kernel has of it yet, and lets its devices
// go. One that is in use stays.
func (h Host) Free(ctx context.Context, d Disk) error {
	alone, err := h.alone(d)
	if err == nil && !alone {
		return fmt.Errorf("%s (%s): %w", d.Name, d.WWID, ErrInUse)
	}
	if err == nil {
		err = h.flush(ctx, d)
	}
	// A device that is going, or offline, takes nothing more: the kernel says so
	// only where no user has it for itself.
	if err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("flush %s (%s): %w", d.Name, d.WWID, err)
	}
	if d.Map != "" {
		if err := h.ungather(ctx, d); err != nil {
			return err
		}
	}
	for _, path := range d.Paths {
		if err := h.WriteAttribute("1", "block", path, "device", "delete"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ungather ends the multipath map. A process that looks at it just then, as udev does
// after each change, keeps it from going.
func (h Host) ungather(ctx context.Context, d Disk) error {
	failed := h.tool(ctx, d, "multipath", multipathPackages, "-f", d.Map)
	if failed == nil || !Exited(failed, 1) {
		return failed
	}
	if _, err := os.Lstat(h.sys("block", d.Name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w (%w)", failed, errMoving)
}

// flush writes back what is cached of the disk. A disk that does not answer
// keeps that from returning, which is left behind when ctx ends.
func (h Host) flush(ctx context.Context, d Disk) error {
	f, err := h.open(d, os.O_RDONLY)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := f.Sync()
		if err == nil {
			err = os.NewSyscallError("ioctl BLKFLSBUF", unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0))
		}
		done <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Grow lets the kernel see how large the disk is now, and the file system at
// path, where it is mounted and there is one, take all of it. It returns the size in bytes.
func (h Host) Grow(ctx context.Context, d Disk, path, fsType string) (int64, error) {
	for _, name := range d.Paths {
		if err := h.WriteAttribute("1", "block", name, "device", "rescan"); err != nil {
			return 0, err
		}
	}
	if d.Map != "" {
		if err := h.tool(ctx, d, "multipathd", multipathPackages, "resize", "map", d.Map); err != nil {
			return 0, err
		}
	}
	size, err := h.Size(d)
	if err != nil {
		return 0, err
	}
	if fsType == noFS {
		return size, nil
	}
	return size, h.growFS(ctx, d, path, fsType)
}

// noFS is the file system of a raw block volume.
const noFS = ""

// growFS lets the file system at path take all of its disk.
func (h Host) growFS(ctx context.Context, d Disk, path, fsType string) error {
	switch fsType {
	case "ext2", "ext3", "ext4":
		return h.tool(ctx, d, "resize2fs", "e2fsprogs", h.Path(d))
	case "xfs":
		return h.tool(ctx, d, "xfs_growfs", "xfsprogs", path)
	case "btrfs":
		return h.tool(ctx, d, "btrfs", "btrfs-progs (Debian, Fedora) or btrfsprogs (SUSE)", "filesystem", "resize", "max",
			path)
	}
	return fmt.Errorf("no way is known to grow a file system of type %q", fsType)
}

const multipathPackages = "multipath-tools (Debian, Ubuntu, SUSE) or device-mapper-multipath (Fedora)"

// Gather asks multipath to make one device of several paths, where that is set
// up on this node; d stays as it is where it is not.
func (h Host) Gather(ctx context.Context, d Disk) (Disk, error) {
	if len(d.Paths) < 2 || d.Map != "" {
		return d, nil
	}
	// An error means that it is not installed, that the disk is none of its, or
	// that multipathd makes the map at this moment.
	_ = h.tool(ctx, d, "multipath", multipathPackages, h.Path(d))
	return h.Found(d.Paths)
}
