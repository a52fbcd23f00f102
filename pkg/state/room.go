package state

import (
	"errors"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// On a full disk volumes must still be taken away, and each step of that is a
// durable write. So the journal's file has room of its own, and what begins
// something is refused before the disk is full.
const (
	// wantedRoom is how much of the disk has to be free for a change that begins
	// something, and how much the file's own room is at least, in bytes.
	wantedRoom = 1 << 20
	// maxReserve bounds the file's own room, which is otherwise as much as the
	// file has: one transaction may write every page anew.
	maxReserve = 64 << 20
	// smallPart is the part of a small disk that is asked for in place of wantedRoom.
	smallPart = 16
)

// keepRoom sets room aside after the end of the file, for as long as its size
// stays. Where the file system cannot do that, or is full, there is none.
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
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(size+reserve)) == nil {
		b.roomFor = size
	}
}

// diskSize is the size of the file system that path is on, in bytes; 0 where it has none.
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
	if err := unix.Statfs(filepath.Dir(b.path), &st); err != nil || st.Blocks == 0 { // a tmpfs without a limit has none
		return false
	}
	free, size := int(st.Bavail)*int(st.Frsize), int(st.Blocks)*int(st.Frsize)
	return free < min(wantedRoom, size/smallPart)
}

// noRoom reports whether err is what a full disk answers.
func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// begins reports whether c makes the journal hold what it did not: a fact of a
// volume that is not being made by what is stored, or a value under a new key.
// What cannot be read begins something.
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

// makesMore reports whether a fact is being made, or is there, by is and not by was.
func makesMore(was, is Volume) bool {
	makes := func(f Fact) bool { return f.Phase == Entering || f.Phase == Present }
	more := makes(is.Attach) && !makes(was.Attach) || makes(is.Stage) && !makes(was.Stage)
	for pod, m := range is.Mounts {
		more = more || makes(m.Fact) && !makes(was.Mounts[pod].Fact)
	}
	return more
}
