package mount

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

// Info is what the kernel shows at a path. Its fields have the meaning of those of
// state.Seen.
type Info struct {
	// Exists means that there is something at the path. A symbolic link is not followed.
	Exists bool
	// Mounted means that the path is the root of a mount.
	Mounted bool
	// MountID is the unique, never reused id of the topmost mount there, or 0 if the
	// kernel has none ([MountID]) or nothing is mounted.
	MountID uint64
	// Dev is the device of a block device node, and for anything else the device of its
	// file system, as major<<32|minor; 0 if unknown.
	Dev uint64
	// Layers is how many mounts are stacked at the path; 0 if it is not mounted.
	Layers int
	// BlockDevice means that there is a block device node.
	BlockDevice bool
	// ReadOnly means that the mount that holds the path, or its file system, is
	// read-only.
	ReadOnly bool
}

// Look returns what the kernel shows at path. A path that does not exist is not an error;
// an error means that the state is unknown. Look does not ask the storage behind a mount,
// so a dead file system is reported as mounted. If the kernel hangs nevertheless, Look
// returns when ctx ends and abandons the call.
func (k *Kernel) Look(ctx context.Context, path string) (Info, error) {
	info, err := inLane(ctx, k.lanes, lane{"look", path}, func() (Info, error) { return k.look(path) })
	if err != nil {
		return Info{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return info, nil
}

func (k *Kernel) look(path string) (Info, error) {
	p, err := k.place(path)
	if missing(err) {
		return Info{}, nil
	}
	if err != nil {
		return Info{}, err
	}
	defer p.close()
	return k.lookAt(p)
}

// maxLooks limits how often a look is repeated because the mount disappeared during it.
const maxLooks = 16

// errGone means that a mount disappeared during a look.
var errGone = errors.New("it is unmounted repeatedly")

func (k *Kernel) lookAt(p place) (info Info, err error) {
	for range maxLooks {
		if info, err = k.lookOnce(p); !errors.Is(err, errGone) {
			break
		}
	}
	return info, err
}

func (k *Kernel) lookOnce(p place) (Info, error) {
	st, err := k.identifyPlace(p)
	switch {
	case missing(err):
		return Info{}, nil
	case storageDead(err):
		return k.lookInTable(p, err)
	case err != nil:
		return Info{}, err
	}
	info := Info{Exists: true, Dev: st.dev, BlockDevice: st.block}
	if k.has(MountID) {
		err = k.fillByID(&info, p, st)
	} else {
		err = k.fillFromTable(&info, p, st)
	}
	return info, err
}

// identity is what statx returns for a file.
type identity struct {
	mountID   uint64 // the unique one with MountID, else the small one
	mountRoot bool   // only with MountRoot
	dev       uint64
	block     bool
	link      bool
}

// identifyPlace identifies what is at a place: the topmost mount, or a symbolic link
// itself.
func (k *Kernel) identifyPlace(p place) (identity, error) {
	if k.has(MountRoot) {
		return k.statx(p.dir, p.name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	}
	fd, err := k.open(p)
	if err != nil {
		return identity{}, err
	}
	defer unix.Close(fd)
	return k.identify(fd)
}

func (k *Kernel) identify(fd int) (identity, error) {
	id, err := k.statx(fd, "", unix.AT_EMPTY_PATH)
	if err == nil && !k.has(MountRoot) {
		id.mountID, err = beneath.MountID(fd)
	}
	return id, err
}

// statx asks only for what is in memory (AT_STATX_DONT_SYNC).
func (k *Kernel) statx(dir int, name string, flags int) (identity, error) {
	mask := unix.STATX_TYPE | unix.STATX_MNT_ID
	if k.has(MountID) {
		mask = unix.STATX_TYPE | unix.STATX_MNT_ID_UNIQUE
	}
	var st unix.Statx_t
	_, err := ignoreEINTR(func() (struct{}, error) {
		return struct{}{}, unix.Statx(dir, name, flags|unix.AT_STATX_DONT_SYNC, mask, &st)
	})
	if err != nil {
		return identity{}, os.NewSyscallError("statx", err)
	}
	id := identity{
		mountID:   st.Mnt_id,
		mountRoot: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		dev:       device(st.Dev_major, st.Dev_minor),
		block:     st.Mode&unix.S_IFMT == unix.S_IFBLK,
		link:      st.Mode&unix.S_IFMT == unix.S_IFLNK,
	}
	if id.block {
		id.dev = device(st.Rdev_major, st.Rdev_minor)
	}
	return id, nil
}

// fillByID completes info by statmount.
func (k *Kernel) fillByID(info *Info, p place, st identity) error {
	top, err := statMount(st.mountID, statmountBasic|statmountSuper)
	if err == unix.ENOENT {
		return errGone
	}
	if err != nil {
		return os.NewSyscallError("statmount", err)
	}
	info.ReadOnly = top.ReadOnly
	if !st.mountRoot {
		return nil
	}
	info.Mounted, info.MountID = true, st.mountID
	// Nearly always it is mounted on the directory entry itself, not on another mount.
	if dir, err := k.identify(p.dir); err == nil && dir.mountID == top.ParentID {
		info.Layers = 1
		return nil
	}
	info.Layers, err = layers(st.mountID)
	return err
}

// layers counts the mounts at the path of the topmost mount there. A mount that covers
// another has its mount point at the other's root, so both have the same path.
func layers(id uint64) (int, error) {
	const mask = statmountBasic | statmountPoint
	top, err := statMount(id, mask)
	if err == unix.ENOENT {
		return 0, errGone
	}
	if err != nil {
		return 0, os.NewSyscallError("statmount", err)
	}
	for n, m := 1, top; ; n++ {
		below, err := statMount(m.ParentID, mask)
		if err != nil || below.Path != top.Path || below.ID == m.ID {
			return n, nil
		}
		m = below
	}
}

// fillFromTable completes info from /proc/self/mountinfo.
func (k *Kernel) fillFromTable(info *Info, p place, st identity) error {
	rows, err := k.readMountinfo()
	if err != nil {
		return err
	}
	path, err := p.canonical()
	if err != nil {
		return err
	}
	byID := make(map[uint64]row, len(rows))
	for _, r := range rows {
		byID[r.id] = r
	}
	top, ok := byID[st.mountID]
	if !ok {
		return errGone
	}
	info.ReadOnly = top.entry().ReadOnly
	if k.has(MountRoot) && !st.mountRoot || top.path != path {
		return nil
	}
	info.Mounted = true
	for m := top; ok && m.path == path; m, ok = byID[m.parent] {
		info.Layers++
	}
	return nil
}

// storageDead reports whether err is typical of dead storage, so that only the mount
// table can tell what is mounted.
func storageDead(err error) bool {
	for _, e := range []error{
		unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.EACCES, unix.EHOSTDOWN, unix.ENODEV, unix.ENXIO,
		unix.EWOULDBLOCK, unix.ETIMEDOUT,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// lookInTable reports what is mounted at p after looking there failed with cause.
func (k *Kernel) lookInTable(p place, cause error) (Info, error) {
	path, err := p.canonical()
	if err != nil {
		return Info{}, errors.Join(cause, err)
	}
	entries, err := k.table()
	if err != nil {
		return Info{}, errors.Join(cause, err)
	}
	var info Info
	for _, e := range entries {
		if e.Path == path { // the topmost mount comes last
			info = Info{Exists: true, Mounted: true, MountID: e.ID, Dev: e.Dev, ReadOnly: e.ReadOnly, Layers: info.Layers + 1}
		}
	}
	if !info.Mounted {
		return Info{}, cause
	}
	return info, nil
}
