package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Inspection is the content of a journal's file that no daemon has open.
type Inspection struct {
	Path string
	// Err says why the file cannot be used; nil if it can.
	Err error
	// LastLost means that one of the file's two heads is damaged, so its last write may
	// be missing.
	LastLost bool
	// Recovery says whether records may be lost, as an earlier start or repair noted.
	Recovery state.Recovery
	// Counts has the number of values in each bucket.
	Counts map[string]int
	// Unreadable says, by "bucket/key", why a value cannot be read.
	Unreadable map[string]string
}

// Sound reports whether the whole file is as it was written.
func (i Inspection) Sound() bool { return i.Err == nil && !i.LastLost && len(i.Unreadable) == 0 }

// Inspect reads the file at path and its spare copy without changing them.
func Inspect(path string) (file, spare Inspection) {
	return inspect(path), inspect(path + spareSuffix)
}

func inspect(path string) Inspection {
	i := Inspection{Path: path, Counts: map[string]int{}, Unreadable: map[string]string{}}
	c, err := readExisting(path)
	if err == nil {
		i.LastLost, err = lostLast(path)
	}
	if err != nil {
		i.Err = err
		return i
	}
	i.Recovery = recoveryOf(c[metaBucket][recoveryKey])
	for bucket, values := range c {
		i.Counts[bucket] = len(values)
		if bucket == metaBucket || strings.HasPrefix(bucket, olderPrefix) {
			continue
		}
		for key, value := range values {
			if err := unreadable(bucket, value); err != nil {
				i.Unreadable[bucket+"/"+key] = err.Error()
			}
		}
	}
	return i
}

func readExisting(path string) (content, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case info.Size() == 0:
		return nil, fmt.Errorf("%w: the file is empty", ErrDamaged)
	}
	return readFile(path)
}

// Entry is one value of a journal, for people and their programs.
type Entry struct {
	Bucket string `json:"bucket"`
	Key    string `json:"key"`
	// Value is the value if it is JSON; otherwise Bytes holds it.
	Value json.RawMessage `json:"value,omitempty"`
	Bytes []byte          `json:"bytes,omitempty"`
	// Unreadable says why the value cannot be read; Bytes then holds it as stored.
	Unreadable string `json:"unreadable,omitempty"`
}

// Export returns all values of the file at path, sorted by bucket and key.
func Export(path string) ([]Entry, error) {
	c, err := readExisting(path)
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	var all []Entry
	for _, bucket := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[bucket])) {
			all = append(all, entryOf(bucket, key, c[bucket][key]))
		}
	}
	return all, nil
}

func entryOf(bucket, key string, value []byte) Entry {
	e := Entry{Bucket: bucket, Key: key}
	sealed := strings.HasPrefix(bucket, kvPrefix) || bucket == metaBucket && key == sumsKey
	if sealed || bucket == volumesBucket {
		if err := unreadable(bucket, value); err != nil {
			e.Unreadable, e.Bytes = err.Error(), value
			return e
		}
	}
	if sealed {
		value, _ = unseal(value)
	}
	if json.Valid(value) {
		e.Value = value
	} else {
		e.Bytes = value
	}
	return e
}

// Mend replaces values that cannot be read by those of the spare copy, if it has them,
// and doubts the facts of volumes restored that way. It returns, as "bucket/key", what it
// mended and what still cannot be read. Call it before Load.
func (b *Bolt) Mend(ctx context.Context) (mended, left []string, err error) {
	spare, err := readSpare(b.path + spareSuffix)
	if err != nil {
		spare = content{}
	}
	var bad []entryKey
	if err := b.withFile(func() error {
		return b.db.View(func(tx *bolt.Tx) (err error) {
			bad, err = refused(tx, unreadable)
			return err
		})
	}); err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, at := range bad {
		value, sound := spare.sound(at)
		if value, sound = doubted(at.bucket, value, sound); !sound {
			left = append(left, at.String())
			continue
		}
		// Suspect comes first: a mount that only the unreadable record had may be in use.
		if err := b.Suspect(ctx, "journal repair took values from the spare copy, which may be older"); err != nil {
			return mended, left, err
		}
		if err := b.commit(ctx, change{bucket: at.bucket, values: map[string][]byte{at.key: value}}); err != nil {
			errs = append(errs, fmt.Errorf("mend %s: %w", at, err))
			continue
		}
		mended = append(mended, at.String())
	}
	return mended, left, errors.Join(errs...)
}
