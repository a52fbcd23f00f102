package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// bucket stores the records of one kind in the journal, keyed by [Key.String].
type bucket[R interface{ empty() bool }] struct {
	// name is the journal's bucket. of is what its records describe, in the plural ("claims").
	name, of string
	encode   func(R) ([]byte, error)
	decode   func(key string, b []byte) (R, error)
}

func claimBucket() bucket[record] { return bucket[record]{Bucket, "claims", encode, decode} }

func snapshotBucket() bucket[snapshotRecord] {
	return bucket[snapshotRecord]{SnapshotBucket, "snapshots", encodeSnapshot, decodeSnapshot}
}

func groupBucket() bucket[groupRecord] {
	return bucket[groupRecord]{GroupBucket, "group snapshots", encodeGroup, decodeGroup}
}

// load calls take for each record. For one that cannot be read, unreadable says why.
func (b bucket[R]) load(ctx context.Context, cfg Config, take func(key Key, rec R, unreadable string)) error {
	records, err := cfg.KV.LoadBucket(ctx, b.name)
	if err != nil {
		return fmt.Errorf("load the records of %s: %w", b.of, err)
	}
	one := func(name string, rec R, unreadable string) {
		if unreadable != "" {
			cfg.Logger.Error("record cannot be read", "of", b.of, "name", name, "err", unreadable)
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
		value, err := b.encode(rec)
		if err != nil {
			return err
		}
		values[key.String()] = value
	}
	if err := cfg.KV.CommitBucket(ctx, b.name, values); err != nil {
		cfg.Logger.Error("records cannot be written", "of", b.of, "err", err)
		return fmt.Errorf("write the records of %s: %w", b.of, err)
	}
	return nil
}
