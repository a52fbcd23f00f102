package mount

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What statmount(2) can be asked for, and reports as answered (uapi linux/mount.h).
const (
	statmountSuper  = 0x1
	statmountBasic  = 0x2 // ids, attributes, propagation
	statmountRoot   = 0x8
	statmountPoint  = 0x10
	statmountFSType = 0x20
	statmountSource = 0x200 // Linux 6.13

	// statmountOrigin asks for the file system of a mount and its directory there.
	statmountOrigin = statmountSuper | statmountRoot | statmountFSType | statmountSource
	statmountAll    = statmountOrigin | statmountBasic | statmountPoint
)

// listmountRoot stands for the root mount of the caller's namespace.
const listmountRoot = ^uint64(0)

// mntIDReq is struct mnt_id_req, first version.
type mntIDReq struct {
	size  uint32
	_     uint32
	mntID uint64
	param uint64
}

// statmountHeader is struct statmount without its strings. The fields named after strings
// are offsets into the bytes after the header.
type statmountHeader struct {
	Size         uint32
	_            uint32
	Mask         uint64
	SBDevMajor   uint32
	SBDevMinor   uint32
	SBMagic      uint64
	SBFlags      uint32
	FSType       uint32
	MntID        uint64
	MntParentID  uint64
	MntIDOld     uint32
	MntParentOld uint32
	MntAttr      uint64
	Propagation  uint64
	PeerGroup    uint64
	Master       uint64
	PropFrom     uint64
	MntRoot      uint32
	MntPoint     uint32
	MntNSID      uint64
	FSSubtype    uint32
	SBSource     uint32
	_            [48]uint64
}

const statmountHeaderSize = int(unsafe.Sizeof(statmountHeader{})) // 512

// statMount returns the mount with a unique id.
func statMount(id, mask uint64) (Entry, error) {
	words, err := callStatmount(id, mask)
	if err != nil {
		return Entry{}, err
	}
	return decodeStatmount(words), nil
}

// smallID returns the id that mountinfo shows of the mount with a unique id.
func smallID(id uint64) (uint64, error) {
	words, err := callStatmount(id, statmountBasic)
	if err != nil {
		return 0, err
	}
	return uint64(headerOf(words).MntIDOld), nil
}

// callStatmount returns statmount's answer, a header and strings, in words.
func callStatmount(id, mask uint64) ([]uint64, error) {
	req := mntIDReq{size: unix.MNT_ID_REQ_SIZE_VER0, mntID: id, param: mask}
	buf := make([]uint64, 128) // words, so that the header is aligned
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&req)),
			uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)*8), 0, 0, 0)
		switch {
		case errno == unix.EOVERFLOW && len(buf) < 1<<17:
			buf = make([]uint64, 4*len(buf))
		case errno == unix.EINTR:
		case errno != 0:
			return nil, errno
		default:
			return buf, nil
		}
	}
}

func headerOf(words []uint64) *statmountHeader {
	return (*statmountHeader)(unsafe.Pointer(&words[0]))
}

func decodeStatmount(words []uint64) Entry {
	h := headerOf(words)
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	str := func(bit uint64, off uint32) string {
		at := statmountHeaderSize + int(off)
		if h.Mask&bit == 0 || at > len(buf) {
			return ""
		}
		s := buf[at:]
		if end := bytes.IndexByte(s, 0); end >= 0 {
			s = s[:end]
		}
		return string(s)
	}
	e := Entry{
		ID:       h.MntID,
		ParentID: h.MntParentID,
		Path:     str(statmountPoint, h.MntPoint),
		FSType:   str(statmountFSType, h.FSType),
		Source:   str(statmountSource, h.SBSource),
		Dev:      device(h.SBDevMajor, h.SBDevMinor),
		ReadOnly: h.SBFlags&unix.MS_RDONLY != 0 || h.MntAttr&unix.MOUNT_ATTR_RDONLY != 0,
		Shared:   h.Propagation&unix.MS_SHARED != 0,
	}
	e.Root = rootOf(e.FSType, str(statmountRoot, h.MntRoot), e.Source)
	return e
}

// listMounts returns, in order, the unique ids larger than after of all mounts below the
// root of the namespace.
func listMounts(after uint64) ([]uint64, error) {
	var ids []uint64
	req := mntIDReq{size: unix.MNT_ID_REQ_SIZE_VER0, mntID: listmountRoot, param: after}
	page := make([]uint64, 1024)
	for {
		n, _, errno := unix.Syscall6(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&req)),
			uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		ids = append(ids, page[:n]...)
		if int(n) < len(page) {
			return ids, nil
		}
		req.param = page[n-1]
	}
}
