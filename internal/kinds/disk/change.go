package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrInUse means that a mount or another device uses the disk exclusively.
var ErrInUse = errors.New("the disk is in use: mounted in some mount namespace, or part of another device")

// Free flushes the disk's cached writes and removes its devices from the kernel. It
// fails with ErrInUse if the disk is in use. If the disk does not answer, Free does not
// return; when it does after the end of ctx, the devices stay.
func (h Host) Free(ctx context.Context, d Disk) error {
	unused, err := h.unused(d)
	if err == nil && !unused {
		return fmt.Errorf("%s (%s): %w", d.Name, d.WWID, ErrInUse)
	}
	if err == nil {
		err = h.flush(d)
	}
	// A device that is being removed or is offline accepts no writes. The kernel
	// returns these errors only if nothing uses the device exclusively.
	if err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("flush %s (%s): %w", d.Name, d.WWID, err)
	}
	if ctx.Err() != nil { // another volume may have begun to use the disk
		return context.Cause(ctx)
	}
	if d.Map != "" {
		if err := h.removeMap(ctx, d); err != nil {
			return err
		}
	}
	for _, path := range d.Paths {
		if err := h.writeAttribute("1", "block", path, "device", "delete"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeMap removes the multipath map. The removal fails while a process has the map
// open, as udev does after each change; the caller then tries again.
func (h Host) removeMap(ctx context.Context, d Disk) error {
	failed := h.tool(ctx, d, "multipath", multipathPackages, "-f", d.Map)
	if failed == nil || !Exited(failed, 1) {
		return failed
	}
	if _, err := os.Lstat(h.sys("block", d.Name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w (%w)", failed, errMoving)
}

// flush writes back the disk's cached data.
func (h Host) flush(d Disk) error {
	f, err := h.open(d, os.O_RDONLY)
	if err != nil {
		return err
	}
	if err = f.Sync(); err == nil {
		err = dropCache(f)
	}
	return errors.Join(err, f.Close())
}

// Grow makes the kernel read the disk's new size, grows the file system mounted at
// path, unless fsType is empty, and returns the size in bytes.
func (h Host) Grow(ctx context.Context, d Disk, path, fsType string) (int64, error) {
	for _, name := range d.Paths {
		if err := h.writeAttribute("1", "block", name, "device", "rescan"); err != nil {
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

// noFS is the file system type of a raw block volume.
const noFS = ""

// growFS grows the file system mounted at path to the size of its disk.
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
	return fmt.Errorf("cannot grow a file system of type %q", fsType)
}
