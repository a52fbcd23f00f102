package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// journaled is a record that a bucket stores.
type journaled[R any] interface {
	// empty reports whether there is nothing to store.
	empty() bool
	// stamped returns the record with the version that this code writes.
	stamped() R
	// problem says why the record, found under key, cannot be used, or returns "".
	problem(key string) string
}

// bucket stores the records of one kind in the journal, keyed by [Key.String].
type bucket[R journaled[R]] struct {
	name string // the journal's bucket
	of   string // what a record describes ("claim")
}

func claimBucket() bucket[record] { return bucket[record]{Bucket, "claim"} }

func snapshotBucket() bucket[snapshotRecord] {
	return bucket[snapshotRecord]{SnapshotBucket, "snapshot"}
}

func groupBucket() bucket[groupRecord] { return bucket[groupRecord]{GroupBucket, "group snapshot"} }

// encode returns r in the journal's format.
func (b bucket[R]) encode(key string, r R) ([]byte, error) {
	data, err := json.Marshal(r.stamped())
	if err != nil {
		return nil, fmt.Errorf("encode record of %s %s: %w", b.of, key, err)
	}
	return data, nil
}

// decode parses what encode wrote for key. It returns an error unless the whole record is valid.
func (b bucket[R]) decode(key string, data []byte) (R, error) {
	var r, none R
	if err := json.Unmarshal(data, &r); err != nil {
		return none, fmt.Errorf("decode record of %s %s: %w", b.of, key, err)
	}
	if problem := r.problem(key); problem != "" {
		return none, fmt.Errorf("decode record of %s %s: %s", b.of, key, problem)
	}
	return r, nil
}

// load calls take for each record. For one that cannot be read, unreadable says why.
func (b bucket[R]) load(ctx context.Context, cfg Config, take func(key Key, rec R, unreadable string)) error {
	records, err := cfg.KV.LoadBucket(ctx, b.name)
	if err != nil {
		return fmt.Errorf("load the records of %ss: %w", b.of, err)
	}
	one := func(name string, rec R, unreadable string) {
		if unreadable != "" {
			cfg.Logger.Error("record cannot be read", "of", b.of+"s", "name", name, "err", unreadable)
		}
		namespace, object, _ := strings.Cut(name, "/")
		take(Key{Namespace: namespace, Name: object}, rec, unreadable)
	}
	for _, name := range slices.Sorted(maps.Keys(records.Sound)) {
		rec, err := b.decode(name, records.Sound[name])
		if err != nil {
			one(name, rec, err.Error())
			continue
		}
		one(name, rec, "")
	}
	for _, name := range slices.Sorted(maps.Keys(records.Unreadable)) {
		var none R
		one(name, none, records.Unreadable[name])
	}
	return nil
}

// commit makes all changes durable, or none. An empty record is removed.
func (b bucket[R]) commit(ctx context.Context, cfg Config, changes map[Key]R) error {
	if len(changes) == 0 {
		return nil
	}
	values := make(map[string][]byte, len(changes))
	for key, rec := range changes {
		values[key.String()] = nil
		if rec.empty() {
			continue
		}
		value, err := b.encode(key.String(), rec)
		if err != nil {
			return err
		}
		values[key.String()] = value
	}
	if err := cfg.KV.CommitBucket(ctx, b.name, values); err != nil {
		cfg.Logger.Error("records cannot be written", "of", b.of+"s", "err", err)
		return fmt.Errorf("write the records of %ss: %w", b.of, err)
	}
	return nil
}
