package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// ErrIdentity means that a device is not the expected disk, or does not report which
// disk it is.
var ErrIdentity = errors.New("identity of the disk is not proven")

// Disk is a disk that was found: a SCSI device, or a multipath device over several.
type Disk struct {
	// Name is the kernel's name, such as sda or dm-0.
	Name string
	// Dev is the device number as major:minor.
	Dev string
	// WWID is the identity that the disk reports, such as naa.6001405...
	WWID string
	// Paths are the names of the SCSI devices that lead to the disk, sorted.
	Paths []string
	// Map is the name of the multipath map; it is empty if there is none.
	Map string
}

// Found returns the disk that the named SCSI devices lead to.
func (h Host) Found(names []string) (Disk, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return Disk{}, errors.New("no device")
	}
	d := Disk{Name: names[0], Paths: names}
	for _, name := range names {
		wwid, err := h.wwid(name)
		if err != nil {
			return Disk{}, err
		}
		if d.WWID == "" {
			d.WWID = wwid
		}
		if wwid != d.WWID {
			return Disk{}, fmt.Errorf("%s is %s, but %s is %s: paths of one volume lead to different disks: %w", names[0],
				d.WWID, name, wwid, ErrIdentity)
		}
	}
	if err := h.multipath(&d); err != nil {
		return Disk{}, err
	}
	var err error
	d.Dev, err = h.read("block", d.Name, "dev")
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w (%w)", err, errMoving)
	}
	return d, err
}

// wwid returns the identity that the SCSI device reports: page 0x83 of its vital
// product data, which the kernel reads whenever the device appears.
func (h Host) wwid(name string) (string, error) {
	wwid, err := h.read("block", name, "device", "wwid")
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w (%w): %w", name, err, errMoving, ErrIdentity)
	}
	if err != nil || wwid == "" {
		return "", fmt.Errorf("%s does not say which disk it is (%v): %w", name, err, ErrIdentity)
	}
	return wwid, nil
}

// multipath replaces d by the multipath device over its paths, if there is one.
func (h Host) multipath(d *Disk) error {
	for _, name := range d.Paths {
		holders, err := os.ReadDir(h.sys("block", name, "holders"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, holder := range holders {
			uuid, err := h.read("block", holder.Name(), "dm", "uuid")
			if err != nil || !strings.HasPrefix(uuid, "mpath-") {
				continue
			}
			if d.Map != "" && d.Name != holder.Name() {
				return fmt.Errorf("paths %q are in two multipath maps, %s and %s: %w", d.Paths, d.Name, holder.Name(), ErrIdentity)
			}
			d.Name = holder.Name()
			if d.Map, err = h.read("block", d.Name, "dm", "name"); err != nil {
				return fmt.Errorf("%w (%w)", err, errMoving)
			}
		}
	}
	if d.Map == "" {
		return nil
	}
	// A map has its paths before it has a size, and accepts no I/O while it is
	// suspended.
	size, err := h.Size(*d)
	if errors.Is(err, os.ErrNotExist) || err == nil && size == 0 {
		return fmt.Errorf("multipath map %s has no size yet: %w", d.Map, errMoving)
	}
	if suspended, _ := h.read("block", d.Name, "dm", "suspended"); suspended == "1" {
		return fmt.Errorf("multipath map %s is suspended: %w", d.Map, errMoving)
	}
	return err
}

// Path returns the path of the disk's device node.
func (h Host) Path(d Disk) string { return filepath.Join(h.Dev, d.Name) }

// open opens the disk's device node and proves that the node belongs to the disk. While
// the file is open, the kernel gives the name to no other device.
func (h Host) open(d Disk, flags int) (*os.File, error) {
	f, err := h.openNode(d.Name, flags)
	if err != nil {
		return nil, err
	}
	err = h.prove(f, d)
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (h Host) prove(f *os.File, d Disk) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	dev := mount.DeviceText(mount.DeviceOf(st.Rdev))
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || dev != d.Dev {
		return fmt.Errorf("%s is not the block device %s but %s (mode %o): %w", f.Name(), d.Dev, dev, st.Mode, ErrIdentity)
	}
	for _, path := range d.Paths { // read again: while the file is open, the name stays with this device
		wwid, err := h.wwid(path)
		if err != nil {
			return err
		}
		if wwid != d.WWID {
			return fmt.Errorf("%s was %s and is %s: %w", path, d.WWID, wwid, ErrIdentity)
		}
	}
	return nil
}

// Size returns the disk's size in bytes.
func (h Host) Size(d Disk) (int64, error) {
	text, err := h.read("block", d.Name, "size")
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", d.Name, err)
	}
	return sectors * 512, nil // for any block size (sysfs-block)
}

// Blocks returns the disks below a SCSI device's directory in sysfs: at most one.
func Blocks(device string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(device, "block"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
