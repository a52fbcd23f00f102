package localdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// bindData bind-mounts the directory of a volume at target.
func (d *Driver) bindData(v volume, target string, readOnly bool) error {
	return d.mounts.Bind(d.store.dataPath(v.ID, v.Type), target, mount.BindOptions{ReadOnly: readOnly})
}

// mountImage mounts the file system of an image at target, where nothing is mounted. It makes the
// file system the first time, and grows it if the image has grown.
func (d *Driver) mountImage(ctx context.Context, v volume, target string, u use) error {
	path := d.store.dataPath(v.ID, v.Type)
	image, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return noData(v.ID, err)
	}
	defer image.Close()
	if dev, err := d.loopInUse(ctx, v); err != nil {
		return err
	} else if dev != nil {
		defer dev.Close()
		return d.mountDevice(dev, v, target, u)
	}
	if err := checkWhole(v, path); err != nil {
		return err
	}
	if err := enlarge(image, v.CapacityBytes); err != nil {
		return err
	}
	if v, err = d.recordFS(v, image, u.FSType); err != nil {
		return err
	}
	dev, err := exclusiveLoop(image)
	if err != nil {
		return err
	}
	defer dev.Close() // by then the mount keeps it open, or it is not needed
	if err := dev.tune(v); err != nil {
		return err
	}
	if v, err = d.prepareFS(ctx, v, dev); err != nil {
		return err
	}
	if err := d.mountDevice(dev, v, target, u); err != nil {
		return err
	}
	if v.FSBytes < v.CapacityBytes {
		_, err = d.growStaged(ctx, v, target)
	}
	return err
}

// mountDevice mounts the file system on dev at target.
func (d *Driver) mountDevice(dev *loopDevice, v volume, target string, u use) error {
	flags := strings.Split(u.Flags, ",")
	if v.Formatted == fsXFS {
		// A copy has the UUID of its original, which may be mounted at the same time.
		flags = append(flags, "nouuid")
	}
	err := d.mounts.Filesystem(dev.path, target, v.Formatted, flags)
	if err != nil && u.Flags != "" && (errors.Is(err, unix.EINVAL) || errors.Is(err, mount.ErrOption)) {
		return invalid("mount flags %q: %v", u.Flags, err)
	}
	return err
}

// loopInUse returns the loop device of a volume that is not staged although its file system is in use: pods
// have it mounted, for example after a manual unmount of the stage, or a freeze keeps it. Such a file
// system is mounted again without a check or growth. The result is nil for other volumes.
func (d *Driver) loopInUse(ctx context.Context, v volume) (*loopDevice, error) {
	if v.Formatted == "" {
		return nil, nil
	}
	devs, err := findLoops(d.store.dataPath(v.ID, v.Type))
	if err != nil {
		return nil, err
	}
	if len(devs) == 1 {
		a, path := d.store.attachment(v.ID), ""
		if path, err = d.mountPoint(ctx, v, devs[0], a.fsTargets()); path != "" || err == nil && a.Frozen {
			return devs[0], nil
		}
	}
	closeLoops(devs)
	return nil, err
}

// mountPoint returns the first of paths at which the device is mounted, or "". It cannot compare the
// device number of btrfs, which has its own.
func (d *Driver) mountPoint(ctx context.Context, v volume, dev *loopDevice, paths []string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dev.Fd()), &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", dev.path, err)
	}
	for _, path := range paths {
		info, err := d.mounts.Look(ctx, path)
		if err != nil {
			return "", err
		}
		if info.Mounted && (info.Dev == mount.DeviceOf(st.Rdev) || v.Formatted == fsBtrfs) {
			return path, nil
		}
	}
	return "", nil
}

// recordFS decides which file system v gets. If one has to be made, it records that after checking
// that the image is blank or that this driver's mkfs was interrupted (R17).
func (d *Driver) recordFS(v volume, image *os.File, asked string) (volume, error) {
	if v.Formatted != "" {
		if asked != "" && asked != v.Formatted {
			return v, precondition("volume %s is formatted as %s, not %s", v.ID, v.Formatted, asked)
		}
		return v, nil
	}
	want := cmp.Or(asked, v.FSType)
	if want == "" {
		want = defaultFS()
		if v.CapacityBytes < minXFSBytes { // it was created on a node that had no mkfs.xfs then
			want = fsExt4
		}
		d.log.Info("no file system type is asked for", "volume", v.ID, "made", want, "bytes", v.CapacityBytes,
			"has mkfs.xfs", defaultFS() == fsXFS)
	}
	if least, _ := minBytes(want); v.CapacityBytes < least {
		return v, precondition("volume %s has %d bytes, %s needs %d", v.ID, v.CapacityBytes, want, least)
	}
	if v.Formatting == "" {
		blank, err := isBlank(image)
		if err != nil {
			return v, err
		}
		if !blank {
			return v, precondition("volume %s contains data, but this driver has not formatted it: it is left as it is",
				v.ID)
		}
	}
	if v.Formatting == want {
		return v, nil
	}
	v.Formatting = want
	return v, d.store.putVolume(v)
}

// prepareFS makes the file system on dev ready to be mounted.
func (d *Driver) prepareFS(ctx context.Context, v volume, dev *loopDevice) (volume, error) {
	if v.Formatted == "" {
		if err := makeFS(ctx, v.Formatting, dev.path, v.CapacityBytes); err != nil {
			return v, err
		}
		if err := dev.Sync(); err != nil {
			return v, fmt.Errorf("sync %s: %w", dev.path, err)
		}
		v.Formatted, v.Formatting, v.FSBytes = v.Formatting, "", v.CapacityBytes
		return v, d.store.putVolume(v)
	}
	if err := checkFS(ctx, v.Formatted, dev.path); err != nil {
		return v, err
	}
	if v.FSBytes >= v.CapacityBytes {
		return v, nil
	}
	grown, err := growUnmounted(ctx, v.Formatted, dev.path)
	if err != nil || !grown {
		return v, err
	}
	v.FSBytes = v.CapacityBytes
	return v, d.store.putVolume(v)
}

// growStaged grows the file system of v, mounted at path, to the size of its image.
func (d *Driver) growStaged(ctx context.Context, v volume, path string) (volume, error) {
	if err := d.grow(ctx, v, path); err != nil {
		if errors.Is(err, unix.EPERM) {
			return v, precondition("growing a mounted %s needs CAP_SYS_RESOURCE, which the driver does not have: "+
				"volume %s grows to %d bytes when it is staged next", v.Formatted, v.ID, v.CapacityBytes)
		}
		return v, err
	}
	v.FSBytes = v.CapacityBytes
	return v, d.store.putVolume(v)
}

// exclusiveLoop returns a loop device of the image that no other process uses, with autoclear. Two
// devices with one file system would destroy it.
func exclusiveLoop(image *os.File) (*loopDevice, error) {
	devs, err := findLoops(image.Name())
	if err != nil {
		return nil, err
	}
	defer closeLoops(devs)
	switch len(devs) {
	case 0:
		return attachLoop(image, loopUse{Autoclear: true})
	case 1:
		return devs[0].adopt()
	}
	return nil, precondition("%s is attached to %s and %s", image.Name(), devs[0].path, devs[1].path)
}
