package state

import (
	"errors"
	"fmt"
)

// Names of the buckets. Those of LoadBucket have kvPrefix before their name.
const (
	volumesBucket = "volumes"
	metaBucket    = "meta"
	kvPrefix      = "kv/"
)

// Keys of metaBucket.
const (
	formatKey = "format"
	bootIDKey = "bootID"
	// recoveryKey has a Recovery that no operator has accepted, as JSON.
	recoveryKey = "recovery"
)

// maxKey and maxValue bound what a journal takes, in bytes, so that what it
// would refuse fails its own caller and not those who share the write.
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

// recordChange encodes records; quarantined ones may only be deleted.
func recordChange(changes map[VolumeID]*Volume, quarantined map[VolumeID]string) (change, error) {
	c := change{bucket: volumesBucket, values: make(map[string][]byte, len(changes))}
	var e encoder
	for id, v := range changes {
		if v == nil {
			c.values[string(id)] = nil
			continue
		}
		if v.ID != id {
			return change{}, fmt.Errorf("commit volume %q: its record says that it is %q", id, v.ID)
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

// unsealAll sorts stored values, which are the caller's own, into those that can be
// read and those that cannot.
func unsealAll(stored map[string][]byte) Values {
	v := Values{Sound: stored}
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
