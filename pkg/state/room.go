package state

import (
	"errors"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Volumes must still be removed when the disk is full, and each step of a removal is a
// durable write. So the journal's file has space reserved for it, and changes that begin
// something are refused before the disk is full.
const (
	// wantedRoom is the free disk space, in bytes, that a change needs if it begins
	// something. It is also the minimum reserve.
	wantedRoom = 1 << 20
	// maxReserve limits the reserve, which otherwise equals the size of the file: one
	// transaction may rewrite every page.
	maxReserve = 64 << 20
	// smallPart replaces wantedRoom on a small disk: 1/smallPart of the disk.
	smallPart = 16
	// reserveParts is how many sizes of the reserve are tried, each half of the one before.
	reserveParts = 6
)

// keepRoom reserves space after the end of the file when its size has changed. If the disk has
// too little, it reserves part of that, and tries again after the next write. There is no
// reserve if the file system does not support that or is full.
func (b *Bolt) keepRoom() {
	size := b.size()
	if size == b.roomFor {
		return
	}
	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	reserve := min(max(size, min(wantedRoom, diskSize(b.path)/smallPart)), maxReserve)
	for part := range reserveParts {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(size+reserve>>part))
		if err == nil && part == 0 {
			b.roomFor = size
		}
		if !noRoom(err) {
			return
		}
	}
}

// diskSize returns the size in bytes of the file system that holds path; 0 if it has
// none.
func diskSize(path string) int {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		return 0
	}
	return int(st.Blocks) * int(st.Frsize)
}

// short reports whether the disk has too little room to begin anything.
func (b *Bolt) short() bool {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &st); err != nil || st.Blocks == 0 { // 0: a tmpfs without a limit
		return false
	}
	free, size := int(st.Bavail)*int(st.Frsize), int(st.Blocks)*int(st.Frsize)
	return free < min(wantedRoom, size/smallPart)
}

// noRoom reports whether err means that the disk or a quota is full.
func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// begins reports whether c adds something to the journal: a fact of a volume that the
// stored record does not have in the making, or a value under a new key. A record that
// cannot be read counts as a beginning.
func begins(tx *bolt.Tx, c change) bool {
	bucket := tx.Bucket([]byte(c.bucket))
	for key, value := range c.values {
		if value == nil || c.bucket == metaBucket {
			continue
		}
		var stored []byte
		if bucket != nil {
			stored = bucket.Get([]byte(key))
		}
		if stored == nil {
			return true
		}
		if c.bucket != volumesBucket {
			continue
		}
		was, err := DecodeRecord(stored)
		is, isErr := DecodeRecord(value)
		if err != nil || isErr != nil || makesMore(was, is) {
			return true
		}
	}
	return false
}

// makesMore reports whether a fact is entering or present in is and absent in was. One that is
// leaving in was begins nothing: the intent of a removal marks the removals that follow, too, and
// the result of one that failed says again that their facts are present.
func makesMore(was, is Volume) bool {
	makes := func(was, is Fact) bool { return was.Phase == Absent && (is.Phase == Entering || is.Phase == Present) }
	more := makes(was.Attach, is.Attach) || makes(was.Stage, is.Stage)
	for pod, m := range is.Mounts {
		more = more || makes(was.Mounts[pod].Fact, m.Fact)
	}
	return more
}
