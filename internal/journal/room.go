package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
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
	_, disk := diskRoom(b.path)
	reserve := int(min(max(int64(size), min(wantedRoom, disk/smallPart)), maxReserve))
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

// diskRoom returns how many bytes are free on the file system that holds path, and its size; 0 if it has none.
func diskRoom(path string) (free, size int64) {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		return 0, 0
	}
	return bytesOf(st)
}

func bytesOf(st unix.Statfs_t) (free, size int64) {
	return int64(st.Bavail) * int64(st.Frsize), int64(st.Blocks) * int64(st.Frsize)
}

// room says why the disk takes nothing that begins something: it has too little room (ErrFull), or is
// read-only; nil if it takes it.
func (b *Bolt) room() error {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &st); err != nil {
		return nil
	}
	free, size := bytesOf(st)
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return b.refusal(unix.EROFS)
	case size != 0 && free < min(wantedRoom, size/smallPart): // 0: a tmpfs without a limit
		return b.refusal(state.ErrFull)
	}
	return nil
}

// refusal names the directory in which a write failed, and the command that shows its disk. Other errors it returns
// as they are.
func (b *Bolt) refusal(err error) error {
	dir := filepath.Dir(b.path)
	switch {
	case errors.Is(err, state.ErrFull):
		return fmt.Errorf("%w: nothing new is begun until there is room in %s; look with: df -h %s", err, dir, dir)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("the disk of the journal is read-only: nothing is begun or ended until %s can be written (%w); "+
			"look with: findmnt -T %s", dir, err, dir)
	}
	return err
}

// Room says why the journal takes no change that begins something: its disk is full or read-only; nil if it takes
// one. A disk may have room again and no volume may need a write, so Room looks at the disk, and repeats a
// write if the last one failed.
func (b *Bolt) Room() error {
	if err := b.room(); err != nil {
		return err
	}
	b.mu.Lock()
	if b.refused == nil || b.closed || b.broken != nil {
		defer b.mu.Unlock()
		return b.refused
	}
	p := b.enqueue(change{bucket: metaBucket, values: newContent()[metaBucket]})
	b.mu.Unlock()
	<-p.done
	return p.err
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
func makesMore(was, is state.Volume) bool {
	makes := func(was, is state.Fact) bool {
		return was.Phase == state.Absent && (is.Phase == state.Entering || is.Phase == state.Present)
	}
	more := makes(was.Attach, is.Attach) || makes(was.Stage, is.Stage)
	for pod, m := range is.Mounts {
		more = more || makes(was.Mounts[pod].Fact, m.Fact)
	}
	return more
}
