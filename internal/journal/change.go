package journal

import (
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Bucket names. The buckets of LoadBucket have kvPrefix before their names.
const (
	volumesBucket = "volumes"
	metaBucket    = "meta"
	kvPrefix      = "kv/"
	// olderPrefix is before the names of buckets in a spare copy that hold older values.
	olderPrefix = "older/"
)

// Keys of metaBucket.
const (
	formatKey = "format"
	bootIDKey = "bootID"
	// recoveryKey holds a Recovery that no operator has accepted, as JSON.
	recoveryKey = "recovery"
)

// maxKey and maxValue limit what a journal accepts, in bytes. Without them, one oversized
// entry would fail the write for all callers that share it.
const (
	maxKey   = 32 << 10
	maxValue = 64 << 20
)

// change is what one caller wants made durable in one bucket; a nil value deletes.
type change struct {
	bucket string
	values map[string][]byte
}

func (c change) check() error {
	if c.bucket == kvPrefix {
		return errors.New("a bucket needs a name")
	}
	for key, value := range c.values {
		if key == "" || len(key) > maxKey {
			return fmt.Errorf("a key of %d bytes in bucket %q: must have 1 to %d", len(key), c.bucket, maxKey)
		}
		if len(value) > maxValue {
			return fmt.Errorf("value of %q in bucket %q: %d bytes, more than %d", key, c.bucket, len(value), maxValue)
		}
	}
	return nil
}

// recordChange encodes records. A quarantined record may only be deleted.
func recordChange(changes map[state.VolumeID]*state.Volume, quarantined map[state.VolumeID]string) (change, error) {
	c := change{bucket: volumesBucket, values: make(map[string][]byte, len(changes))}
	var e encoder
	for id, v := range changes {
		if v == nil {
			c.values[string(id)] = nil
			continue
		}
		if v.ID != id {
			return change{}, fmt.Errorf("commit volume %q: its record has the id %q", id, v.ID)
		}
		if why, ok := quarantined[id]; ok {
			return change{}, fmt.Errorf("commit volume %q: %w (%s)", id, ErrQuarantined, why)
		}
		b, err := e.record(v)
		if err != nil {
			return change{}, err
		}
		c.values[string(id)] = b
	}
	return c, c.check()
}

func bucketChange(bucket string, changes map[string][]byte) (change, error) {
	c := change{bucket: kvPrefix + bucket, values: make(map[string][]byte, len(changes))}
	for key, value := range changes {
		c.values[key] = nil
		if value != nil {
			c.values[key] = seal(value)
		}
	}
	return c, c.check()
}

// unsealAll splits stored values into readable and unreadable ones. It takes ownership of
// the map.
func unsealAll(stored map[string][]byte) state.Values {
	v := state.Values{Sound: stored}
	for key, b := range stored {
		value, err := unseal(b)
		if err != nil {
			if v.Unreadable == nil {
				v.Unreadable = map[string]string{}
			}
			v.Unreadable[key] = err.Error()
			delete(stored, key)
			continue
		}
		stored[key] = value
	}
	return v
}
