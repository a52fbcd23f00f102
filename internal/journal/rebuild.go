package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A start reads the whole file without changing it, checks what it read, and writes it
// to a new file. So it relies on no page of the old file that the check did not read, above
// all not on the list of free pages: a flipped bit there would free a page in use.

// view calls f with a transaction of the file at path, which it opens for reading. It returns
// ErrDamaged if bbolt cannot read the file, and ErrByteOrder if it can on other machines.
func view(path string, f func(tx *bolt.Tx) error) error {
	var file *os.File
	defer func() {
		if file != nil {
			// A transaction that panicked may hold locks that bbolt's Close would wait for.
			_ = file.Close()
		}
	}()
	if otherOrder(path) {
		return fmt.Errorf("%w: its numbers are not %s as here. To use it, run csi-volmgr on a machine like that which "+
			"wrote it; to start without records here, move it and its spare copy away", ErrByteOrder, binary.NativeEndian)
	}
	return catchDamage(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{
			ReadOnly: true, Timeout: lockTimeout, NoStatistics: true,
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, perm)
				file = f
				return f, err
			},
		})
		if err != nil {
			return openError(err)
		}
		if err := db.View(f); err != nil {
			return err
		}
		file = nil // Close closes it
		return db.Close()
	})
}

// readFile returns what a journal's file holds. It returns ErrDamaged if the content is
// damaged, and ErrFormat if it has a newer format.
func readFile(path string) (c content, err error) {
	err = view(path, func(tx *bolt.Tx) error {
		if _, err := check(tx); err != nil {
			return err
		}
		c, err = copyOf(tx)
		return err
	})
	if err == nil && len(c) > 0 {
		err = checkFormat(c[metaBucket][formatKey])
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// renew replaces the file at path by a new one that holds the same, or the keys of a new journal
// if that is nothing. If the last write may be missing, it doubts every fact and keeps the
// original file. Otherwise, on a full disk, the file stays. s are the sums of the content that
// was checked: a page that changes before it is copied contradicts them.
func renew(path string) (s sums, r state.Recovery, err error) {
	lastLost, err := lostLast(path)
	if err != nil {
		return sums{}, state.Recovery{}, err
	}
	var c content
	err = view(path, func(tx *bolt.Tx) error {
		if s, err = check(tx); err != nil {
			return err
		}
		first, _ := tx.Cursor().First()
		if first != nil {
			if err := checkFormat(metaValue(tx, formatKey)); err != nil {
				return err
			}
		}
		if first == nil || lastLost {
			c, err = copyOf(tx)
			return err
		}
		r = recoveryOf(metaValue(tx, recoveryKey))
		if err := rebuild(path, s, func(f visit) error { return walk(tx, f) }); !noRoom(err) {
			return err
		}
		return nil
	})
	if err != nil || c == nil {
		return s, r, err
	}
	if lastLost {
		if err := errors.Join(c.doubt("one of the two heads of the file is damaged: its last write may be lost"),
			keepAside(path, os.Link)); err != nil {
			return sums{}, state.Recovery{}, err
		}
	} else {
		c = newContent()
	}
	s, r = c.sums(), recoveryOf(c[metaBucket][recoveryKey])
	return s, r, rebuild(path, s, c.entries)
}

// metaValue returns a value of metaBucket, valid during the transaction; nil if there is none.
func metaValue(tx *bolt.Tx, key string) []byte {
	if meta := tx.Bucket([]byte(metaBucket)); meta != nil {
		return meta.Get([]byte(key))
	}
	return nil
}

// copyOf returns a copy of what the transaction sees, with empty buckets, which tell a foreign
// file from a new one.
func copyOf(tx *bolt.Tx) (content, error) {
	c := content{}
	err := tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
		c[string(name)] = map[string][]byte{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, walk(tx, func(bucket string, key, value []byte) error {
		c[bucket][string(key)] = bytes.Clone(value)
		return nil
	})
}

func checkFormat(format []byte) error {
	n, err := strconv.Atoi(string(format))
	switch {
	case err != nil || n < 1:
		return fmt.Errorf("%w: its format is %q: it was not written by csi-volmgr", ErrDamaged, format)
	case n > journalFormat:
		return fmt.Errorf("%w: %d, and this csi-volmgr reads up to %d; run the version that wrote it, or a newer one",
			ErrFormat, n, journalFormat)
	}
	return nil
}

// The file has two heads (bbolt's meta pages), each with a checksum. Every write renews
// the older one.
const (
	headAt       = 16 // the offset in its page, after the page header
	headSize     = 64
	headPageSize = 8  // the offset of the size of the file's pages
	headSum      = 56 // the offset of the 64-bit FNV-1a hash of the bytes before it
	headMagic    = 0xED0CDAED
)

// lostLast reports whether one of the file's two heads is damaged. bbolt then uses the
// other one, which may predate the last write.
func lostLast(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var at int64 // of the head's page
	for range 2 {
		b := make([]byte, headAt+headSize)
		if _, err := f.ReadAt(b, at); err != nil {
			if errors.Is(err, io.EOF) {
				return true, nil
			}
			return false, err
		}
		head := b[headAt:]
		h := fnv.New64a()
		h.Write(head[:headSum])
		if binary.NativeEndian.Uint32(head) != headMagic || binary.NativeEndian.Uint64(head[headSum:]) != h.Sum64() {
			return true, nil
		}
		// The size of the pages is that of the kernel that made the file: 4 KiB or, on arm64, 16 or 64.
		at = int64(binary.NativeEndian.Uint32(head[headPageSize:]))
	}
	return false, nil
}

// otherOrder reports whether the file at path begins with the head of a journal in the other byte order: bbolt writes
// numbers in that of the machine.
func otherOrder(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false // opening it again says why
	}
	defer f.Close()
	var b [4]byte
	_, err = f.ReadAt(b[:], headAt)
	return err == nil && bits.ReverseBytes32(binary.NativeEndian.Uint32(b[:])) == headMagic
}

// visit is called with the entries of a journal, bucket by bucket, in order.
type visit func(bucket string, key, value []byte) error

// rebuildFill is how much of a page a rebuilt file uses; bbolt's own half would write
// twice the pages, at each start and for each spare copy.
const rebuildFill = 0.9

// rebuild atomically and durably replaces the file at path with a new one that holds the
// entries, whose sums are s.
func rebuild(path string, s sums, entries func(visit) error) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	room, err := mapSize(entries)
	if err != nil {
		return err
	}
	db, err := bolt.Open(tmp, 0o600, &bolt.Options{
		Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoStatistics: true,
		InitialMmapSize: room, // bbolt copies all keys and values whenever its map grows
	})
	if err != nil {
		return fmt.Errorf("make a new file: %w", err)
	}
	if err := errors.Join(db.Update(func(tx *bolt.Tx) error { return putAll(tx, s, entries) }), db.Close()); err != nil {
		return errors.Join(fmt.Errorf("write what was read to a new file: %w", err), os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// putAll puts the entries and their sums into an empty file.
func putAll(tx *bolt.Tx, s sums, entries func(visit) error) error {
	var last string
	var b *bolt.Bucket
	if err := entries(func(bucket string, key, value []byte) (err error) {
		if b == nil || bucket != last {
			if b, err = tx.CreateBucket([]byte(bucket)); err != nil {
				return fmt.Errorf("bucket %q: %w", bucket, err)
			}
			b.FillPercent, last = rebuildFill, bucket
		}
		if err := b.Put(key, value); err != nil {
			return fmt.Errorf("bucket %q, key %q: %w", bucket, key, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return s.write(tx)
}

// mapSize returns an upper bound of the size of a file with the entries: split pages are
// half full.
func mapSize(entries func(visit) error) (int, error) {
	n := 1 << 20
	err := entries(func(_ string, key, value []byte) error {
		n += 2 * (len(key) + len(value) + os.Getpagesize()/16)
		return nil
	})
	return n, err
}
