package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// bbolt has a checksum of the file's head only. A bit that flips in one of its pages can
// make a key vanish, come back from an old page, or move to another bucket. So each
// transaction stores sums over all keys and values, and the next start compares them with
// what it reads.

// sumsKey is the key of the sums in metaBucket. They are not part of their own sum.
const sumsKey = "sums"

// sum is the checksum of one bucket. It adds up the hashes of the entries, so that
// updating it for a change costs only the entries changed.
type sum struct {
	// Keys sums the keys alone, Entries the keys with their values.
	Keys    uint64 `json:"keys"`
	Entries uint64 `json:"entries"`
}

// sums holds the sums of all buckets and the id of their transaction: a version of
// csi-volmgr that does not know sums leaves those of an earlier transaction.
type sums struct {
	Tx      int            `json:"tx"`
	Buckets map[string]sum `json:"buckets"`
	scratch []byte         // hashOf builds its input here
}

// hashOf returns the first 8 bytes of the SHA-256 of "<length of bucket> <length of key>
// <bucket><key><value>".
func (s *sums) hashOf(bucket string, key, value []byte) uint64 {
	b := append(strconv.AppendInt(s.scratch[:0], int64(len(bucket)), 10), ' ')
	b = append(strconv.AppendInt(b, int64(len(key)), 10), ' ')
	b = append(append(append(b, bucket...), key...), value...)
	s.scratch = b
	h := sha256.Sum256(b)
	return binary.BigEndian.Uint64(h[:])
}

// replace updates the sums for one entry; nil means no value.
func (s *sums) replace(bucket string, key, was, is []byte) {
	b := s.Buckets[bucket]
	if was != nil {
		b.Entries -= s.hashOf(bucket, key, was)
	}
	if is != nil {
		b.Entries += s.hashOf(bucket, key, is)
	}
	switch {
	case was == nil && is != nil:
		b.Keys += s.hashOf(bucket, key, nil)
	case was != nil && is == nil:
		b.Keys -= s.hashOf(bucket, key, nil)
	}
	if b == (sum{}) {
		delete(s.Buckets, bucket)
		return
	}
	s.Buckets[bucket] = b
}

func (s *sums) clone() sums { return sums{s.Tx, maps.Clone(s.Buckets), s.scratch} }

// put writes a change and updates the sums.
func (s *sums) put(tx *bolt.Tx, c change) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(c.bucket))
	if err != nil {
		return fmt.Errorf("bucket %q: %w", c.bucket, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.values)) { // in order, bbolt moves less of a page
		key, value := []byte(name), c.values[name]
		s.replace(c.bucket, key, bucket.Get(key), value)
		if value == nil {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, value)
		}
		if err != nil {
			return fmt.Errorf("bucket %q, key %q: %w", c.bucket, key, err)
		}
	}
	return nil
}

// write stores the sums in the transaction.
func (s *sums) write(tx *bolt.Tx) error {
	s.Tx = tx.ID()
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode sums: %w", err)
	}
	meta, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
	if err != nil {
		return fmt.Errorf("bucket %q: %w", metaBucket, err)
	}
	return meta.Put([]byte(sumsKey), seal(b))
}

// content is everything that a journal's file holds, by bucket and key.
type content map[string]map[string][]byte

// sums computes the sums of the content.
func (c content) sums() sums {
	s := sums{Buckets: map[string]sum{}}
	for bucket, values := range c {
		for key, value := range values {
			if bucket != metaBucket || key != sumsKey {
				s.replace(bucket, []byte(key), nil, value)
			}
		}
	}
	return s
}

// entries calls f with all that c holds, in order.
func (c content) entries(f visit) error {
	for _, bucket := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[bucket])) {
			if err := f(bucket, []byte(key), c[bucket][key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// entryKey names a value of a journal.
type entryKey struct{ bucket, key string }

func (k entryKey) String() string { return k.bucket + "/" + k.key }

// refused lists, in order, the values for which why returns an error.
func refused(tx *bolt.Tx, why func(bucket string, value []byte) error) (all []entryKey, err error) {
	err = walk(tx, func(bucket string, key, value []byte) error {
		if bucket != metaBucket && !strings.HasPrefix(bucket, olderPrefix) && why(bucket, value) != nil {
			all = append(all, entryKey{bucket, string(key)})
		}
		return nil
	})
	return all, err
}

// unreadable returns why a value cannot be read.
func unreadable(bucket string, value []byte) (err error) {
	if bucket == volumesBucket {
		_, err = DecodeRecord(value)
	} else {
		_, err = unseal(value)
	}
	return err
}

// unsound returns why a value is not as it was written, judged by its own checksum. A
// value that a newer version wrote is sound.
func unsound(bucket string, value []byte) error {
	if bucket == volumesBucket {
		if _, ok := intact(value, recordVersion); ok {
			return nil
		}
	}
	err := unreadable(bucket, value)
	if errors.Is(err, errNewer) {
		return nil
	}
	return err
}

// walk calls f with all that the transaction sees, bucket by bucket, and checks the order of
// the keys. Keys and values are in the file's memory map, and invalid after the transaction.
func walk(tx *bolt.Tx, f visit) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		bucket, last := string(name), []byte(nil)
		return b.ForEach(func(k, v []byte) error {
			if bytes.Compare(last, k) >= 0 || v == nil {
				return fmt.Errorf("%w: bucket %q: keys are out of order", ErrDamaged, name)
			}
			last = k
			return f(bucket, k, v)
		})
	})
}

// check computes the sums of what the transaction sees, and compares them with those that it
// stored. If it stored none, or an earlier transaction did, a version that does not know sums
// wrote the file.
func check(tx *bolt.Tx) (sums, error) {
	have := sums{Buckets: map[string]sum{}}
	var stored []byte
	if err := walk(tx, func(bucket string, key, value []byte) error {
		if bucket == metaBucket && string(key) == sumsKey {
			stored = value
		} else {
			have.replace(bucket, key, nil, value)
		}
		return nil
	}); err != nil || stored == nil {
		return have, err
	}
	var want sums
	b, err := unseal(stored)
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		return sums{}, fmt.Errorf("%w: its checksums cannot be read: %w", ErrDamaged, err)
	}
	if want.Tx != tx.ID() {
		return have, nil
	}
	return have, want.compare(have, func() bool {
		bad, err := refused(tx, unreadable)
		return err == nil && len(bad) > 0
	})
}

// compare returns ErrDamaged if the content with the sums have is not what was written. An
// unreadable value is not damage of the whole file: it is quarantined, and if the keys match,
// nothing else is missing.
func (s sums) compare(have sums, anyUnreadable func() bool) error {
	for _, buckets := range []map[string]sum{s.Buckets, have.Buckets} {
		for name := range buckets {
			switch w, h := s.Buckets[name], have.Buckets[name]; {
			case w.Keys != h.Keys:
				return fmt.Errorf("%w: bucket %q does not have the keys that were written", ErrDamaged, name)
			case w.Entries != h.Entries && (name == metaBucket || !anyUnreadable()):
				return fmt.Errorf("%w: bucket %q does not have the values that were written", ErrDamaged, name)
			}
		}
	}
	return nil
}
