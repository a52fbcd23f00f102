package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// DefaultFS is the file system type of a volume that names none; the kubelet has the
// same default.
const DefaultFS = "ext4"

// ErrNotBlank means that a disk contains data, or may contain some.
var ErrNotBlank = errors.New("the disk is not proven to be blank")

const (
	// headBytes and tailBytes are read before a disk counts as blank. All signatures
	// that blkid 2.41 knows are within them, except for copies: LUKS2 has its second
	// header in the first 4 MiB; GPT, md 0.9 and 1.0, ZFS and firmware RAID have theirs
	// at the end.
	headBytes, tailBytes = 16 << 20, 16 << 20
	chunk                = 1 << 20
)

// copies returns the offsets of backup superblocks, which survive when the head is
// wiped: ext4's in block groups 1 and 3 (4 KiB blocks), btrfs's at 64 MiB and 256 GiB.
func copies() []int64 { return []int64{64 << 20, 128 << 20, 384 << 20, 256 << 30} }

// dropCache makes the kernel read the device again. While another process has the device
// open, its cache may be older than what another node wrote.
func dropCache(device *os.File) error {
	return os.NewSyscallError("ioctl BLKFLSBUF", unix.IoctlSetInt(int(device.Fd()), unix.BLKFLSBUF, 0))
}

// blank proves by reading that a disk of the given size contains only zeros. Otherwise
// it fails with ErrNotBlank.
func blank(ctx context.Context, f io.ReaderAt, size int64) error {
	if size <= 0 {
		return fmt.Errorf("its size is %d bytes: %w", size, ErrNotBlank)
	}
	ranges := [][2]int64{{0, min(size, headBytes)}, {max(0, size-tailBytes), size}}
	for _, at := range copies() {
		if at+4096 <= size {
			ranges = append(ranges, [2]int64{at, at + 4096})
		}
	}
	buf, zeros := make([]byte, chunk), make([]byte, chunk)
	for _, r := range ranges {
		for at := r[0]; at < r[1]; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			part := buf[:min(chunk, r[1]-at)]
			if n, err := f.ReadAt(part, at); n != len(part) {
				return fmt.Errorf("read at byte %d: %w: %w", at, err, ErrNotBlank)
			}
			if !bytes.Equal(part, zeros[:len(part)]) {
				return fmt.Errorf("there is data between byte %d and %d: %w", at, at+int64(len(part)), ErrNotBlank)
			}
			at += int64(len(part))
		}
	}
	return nil
}

// mkfs returns the command that makes a file system. It turns discarding off, since the
// disk is blank. It runs to its end, and keeps the disk open exclusively: after the crash of
// the program that started it, the next attempt waits for it.
func mkfs(fsType, device string) (program.Command, error) {
	c := program.Command{Name: "mkfs." + fsType, ToEnd: true}
	switch fsType {
	case "ext2", "ext3", "ext4":
		c.Packages, c.Args = "e2fsprogs", []string{"-F", "-q", "-m", "0", "-E", "nodiscard", device}
	case "xfs":
		c.Packages, c.Args = "xfsprogs", []string{"-f", "-q", "-K", device}
	case "btrfs":
		c.Packages = "btrfs-progs (Debian, Fedora) or btrfsprogs (SUSE)"
		c.Args = []string{"--force", "--quiet", "--nodiscard", device}
	default:
		return program.Command{}, poddir.Refused("Stage",
			fmt.Errorf("fsType: found %q, want one of ext2, ext3, ext4, xfs, btrfs", fsType))
	}
	return c, nil
}

// prepare checks the file system on the disk that f is open on, or makes one if the
// disk is blank and w allows it.
func (h Host) prepare(ctx context.Context, d Disk, f *os.File, w Want, m *record) error {
	size, err := h.Size(d)
	if err != nil {
		return err
	}
	format, err := mkfs(w.FSType, h.Path(d))
	if err != nil {
		return err
	}
	if err := m.settle(f); err != nil {
		return err
	}
	if !m.Making {
		err := blank(ctx, f, size)
		if err != nil || m.Made {
			if err != nil && !errors.Is(err, ErrNotBlank) {
				return err
			}
			if err == nil {
				return fmt.Errorf("%s had a file system, but is blank now: %w", d.WWID, ErrIdentity)
			}
			return h.check(ctx, d, f, w, err)
		}
		if w.ReadOnly {
			return poddir.Refused("Stage", fmt.Errorf("disk %s is blank, and the volume is read-only", d.WWID))
		}
	}
	m.Making = true
	if err := m.save(); err != nil {
		return err
	}
	if err := h.runOn(ctx, d, format); err != nil {
		return err
	}
	m.Making, m.Made = false, true
	return m.save()
}

// settle ends an interrupted attempt to make a file system if there is one on the disk:
// mkfs completes the superblock last. So mkfs finished before that was recorded, or
// another node made the file system. Other nodes may have written to it since.
func (m *record) settle(f io.ReaderAt) error {
	if !m.Making {
		return nil
	}
	found, err := fileSystem(f)
	if err != nil || found == "" {
		return err
	}
	m.Making, m.Made = false, true
	return m.save()
}

// check repairs what is safe to repair before a mount; xfs and btrfs do that when they
// are mounted. why is the error that says why the disk does not count as blank.
func (h Host) check(ctx context.Context, d Disk, f *os.File, w Want, why error) error {
	if err := requireFS(f, w.FSType); err != nil {
		return err
	}
	const superblock, magic = 1024, 56 // ext4: s_magic
	var b [2]byte
	if _, err := f.ReadAt(b[:], superblock+magic); err != nil {
		return fmt.Errorf("read the superblock of %s: %w (%w)", d.WWID, err, why)
	}
	if b != [2]byte{0x53, 0xef} || w.ReadOnly {
		return nil
	}
	err := h.tool(ctx, d, "e2fsck", "e2fsprogs", "-p", h.Path(d))
	if Exited(err, 1) { // e2fsck corrected errors
		return nil
	}
	return err
}

// requireFS refuses a disk that has another file system than fsType. It treats ext2,
// ext3 and ext4 as one type, since the kernel mounts each of them as a later one.
func requireFS(f io.ReaderAt, fsType string) error {
	found, err := fileSystem(f)
	if err != nil || found == "" {
		return err
	}
	name, _, _ := strings.Cut(found, " ")
	if strings.HasPrefix(fsType, name) {
		return nil
	}
	return &state.CallError{
		Outcome: state.Refused, Call: "Stage", Code: state.FilesystemMismatch,
		Err: fmt.Errorf("fsType: %s is asked for, and the disk has %s; what is on a disk is never formatted", fsType, name),
	}
}
