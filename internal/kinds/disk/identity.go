package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// signature tells where a type of file system stores its magic number and its UUID.
type signature struct {
	name, magic string
	magicAt     int64
	uuidAt      int64
	// makingAt is the place of a byte that is not 0 until mkfs has finished. 0 means that
	// mkfs writes the magic number last.
	makingAt int64
}

// signatures returns the signatures of the file systems that mkfs can make. Their
// on-disk formats are fixed: ext4's s_magic and s_uuid, xfs's sb_magicnum, sb_uuid and
// sb_inprogress, btrfs's magic and fsid.
func signatures() []signature {
	return []signature{
		{"ext", "\x53\xef", 1024 + 0x38, 1024 + 0x68, 0},
		{"xfs", "XFSB", 0, 32, 126},
		{"btrfs", "_BHRfS_M", 64<<10 + 0x40, 64<<10 + 0x20, 0},
	}
}

// fileSystem returns the type and UUID of the file system in f, such as "xfs 0f3c...".
// It returns "" if there is none of a known type, or only one that mkfs has not finished.
func fileSystem(f io.ReaderAt) (string, error) {
	for _, s := range signatures() {
		magic, uuid, making := make([]byte, len(s.magic)), make([]byte, 16), []byte{0}
		if _, err := f.ReadAt(magic, s.magicAt); err != nil {
			return "", err
		}
		if string(magic) != s.magic {
			continue
		}
		if s.makingAt != 0 {
			if _, err := f.ReadAt(making, s.makingAt); err != nil {
				return "", err
			}
		}
		if making[0] != 0 {
			continue
		}
		if _, err := f.ReadAt(uuid, s.uuidAt); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %x", s.name, uuid), nil
	}
	return "", nil
}

// recognize refuses a disk whose file system is not the one that was mounted before.
// The first time, it records the file system.
func (m *record) recognize(f io.ReaderAt) error {
	found, err := fileSystem(f)
	if err != nil {
		return err
	}
	if m.FileSystem == "" && found != "" {
		m.FileSystem = found
		return m.save()
	}
	if found != m.FileSystem {
		return fmt.Errorf("disk %s had file system %q, but has %q now; another one is accepted once no pod of "+
			"this node uses the volume: %w",
			m.WWID, m.FileSystem, found, ErrIdentity)
	}
	return nil
}

// Mount mounts a device's file system by a call of mount. XFS refuses a file system whose UUID is mounted
// already, such as a copy of one in use. Mount then tries without that check (nouuid)
// if twin proves that no other device leads to the same disk, whose file system that would be.
func (w Want) Mount(ctx context.Context, mount func(flags []string) error, twin func() (bool, error)) error {
	flags := w.Options()
	err := mount(flags)
	if w.FSType != "xfs" || !errors.Is(err, unix.EINVAL) {
		return err
	}
	if other, twinErr := twin(); twinErr != nil || other {
		return errors.Join(err, twinErr)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if again := mount(append(flags, "nouuid")); again != nil {
		return err // nouuid did not help: the first error is the cause
	}
	return nil
}

func (s Stager) mount(ctx context.Context, d Disk, target string, w Want) error {
	mount := func(flags []string) error { return s.Kernel.Filesystem(s.Host.Path(d), target, w.FSType, flags) }
	return w.Mount(ctx, mount, func() (bool, error) { return s.Host.twin(d) })
}

// Twin reports whether another device leads to a disk of the device at path, which may be a partition of it or be
// made of several.
func (h Host) Twin(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	device := h.sys("dev", "block", fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	below, err := filepath.Glob(filepath.Join(device, "slaves", "*"))
	if err != nil {
		return false, err
	}
	var d Disk
	for _, part := range append(below, device) {
		dir, err := filepath.EvalSymlinks(part)
		if err != nil {
			return false, err
		}
		if _, err := os.Lstat(filepath.Join(dir, "partition")); err == nil {
			dir = filepath.Dir(dir)
		}
		d.Paths = append(d.Paths, filepath.Base(dir))
	}
	for _, name := range d.Paths {
		d.WWID, err = h.read("block", name, "device", "wwid")
		if errors.Is(err, os.ErrNotExist) {
			continue // not a SCSI device
		}
		if err != nil {
			return false, err
		}
		if other, err := h.twin(d); err != nil || other {
			return other, err
		}
	}
	return false, nil
}

// twin reports whether a device outside d.Paths leads to the same disk. Its file system
// may then be mounted through that device.
func (h Host) twin(d Disk) (bool, error) {
	all, err := os.ReadDir(h.sys("block"))
	if err != nil {
		return false, err
	}
	for _, e := range all {
		if slices.Contains(d.Paths, e.Name()) {
			continue
		}
		wwid, err := h.read("block", e.Name(), "device", "wwid")
		if errors.Is(err, os.ErrNotExist) {
			continue // not a SCSI device
		}
		if err != nil || wwid == d.WWID {
			return wwid == d.WWID, err
		}
	}
	return false, nil
}
