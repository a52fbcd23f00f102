package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// A start reads the whole file without changing it, checks what it read, and writes it
// to a new file. So it relies on no page of the old file that the check did not read, above
// all not on the list of free pages: a flipped bit there would free a page in use.

// readFile reads a journal's file. It returns ErrDamaged if the content is damaged, and
// ErrFormat if it has a newer format. s are the sums of the content. lastLost means that
// the file's last write may be missing.
func readFile(path string) (c content, s sums, lastLost bool, err error) {
	var file *os.File
	defer func() {
		if file != nil {
			// A transaction that panicked may hold locks that bbolt's Close would wait for.
			_ = file.Close()
		}
	}()
	err = catchDamage(func() error {
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
		if err := db.View(func(tx *bolt.Tx) error {
			if c, err = copyOf(tx); err != nil {
				return err
			}
			s, err = check(tx)
			return err
		}); err != nil {
			return err
		}
		file = nil // Close closes it
		return db.Close()
	})
	if err == nil {
		err = c.checkFormat()
	}
	if err != nil {
		return nil, sums{}, false, err
	}
	lastLost, err = lostLast(path)
	return c, s, lastLost, err
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
	return c, walk(tx, func(bucket string, key, value []byte) { c[bucket][string(key)] = bytes.Clone(value) })
}

func (c content) checkFormat() error {
	if len(c) == 0 {
		return nil
	}
	format := c[metaBucket][formatKey]
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
	headAt    = 16 // the offset in its page, after the page header
	headSize  = 64
	headSum   = 56 // the offset of the 64-bit FNV-1a hash of the bytes before it
	headMagic = 0xED0CDAED
)

// lostLast reports whether one of the file's two heads is damaged. bbolt then uses the
// other one, which may predate the last write.
func lostLast(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size := int64(os.Getpagesize())
	for page := range int64(2) {
		b := make([]byte, headAt+headSize)
		if _, err := f.ReadAt(b, page*size); err != nil {
			if errors.Is(err, io.EOF) {
				return true, nil
			}
			return false, err
		}
		h := fnv.New64a()
		h.Write(b[headAt : headAt+headSum])
		if binary.NativeEndian.Uint32(b[headAt:]) != headMagic ||
			binary.NativeEndian.Uint64(b[headAt+headSum:]) != h.Sum64() {
			return true, nil
		}
	}
	return false, nil
}

// room returns an upper bound of the size of a file with the content: split pages are
// half full.
func (c content) room() int {
	n := 1 << 20
	for _, values := range c {
		for key, value := range values {
			n += 2 * (len(key) + len(value) + os.Getpagesize()/16)
		}
	}
	return n
}

// rebuildFill is how much of a page a rebuilt file uses; bbolt's own half would write
// twice the pages, at each start and for each spare copy.
const rebuildFill = 0.9

// rebuild atomically and durably replaces the file at path with a new one that holds the
// content, whose sums are s.
func (c content) rebuild(path string, s sums) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	db, err := bolt.Open(tmp, 0o600, &bolt.Options{
		Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoStatistics: true,
		InitialMmapSize: c.room(), // bbolt copies all keys and values whenever its map grows
	})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, bucket := range slices.Sorted(maps.Keys(c)) {
			if err := putAll(tx, bucket, c[bucket]); err != nil {
				return err
			}
		}
		return s.write(tx)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// putAll makes a bucket with the values.
func putAll(tx *bolt.Tx, bucket string, values map[string][]byte) error {
	b, err := tx.CreateBucket([]byte(bucket))
	if err != nil {
		return fmt.Errorf("bucket %q: %w", bucket, err)
	}
	b.FillPercent = rebuildFill
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := b.Put([]byte(key), values[key]); err != nil {
			return fmt.Errorf("bucket %q, key %q: %w", bucket, key, err)
		}
	}
	return nil
}
