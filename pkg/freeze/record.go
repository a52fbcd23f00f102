package freeze

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bucket is the journal's bucket of freezes, by device.
const bucket = "frozen"

// version is the version of a record that this code writes.
const version = 1

// record is one freeze, as it is in the journal before it is made.
type record struct {
	Version int            `json:"version"`
	Volume  state.VolumeID `json:"volume"`
	Path    string         `json:"path"`
	// Dev is the device of the file system as the mount table has it (major:minor).
	Dev    string `json:"dev"`
	FSType string `json:"fsType"`
	Boot   string `json:"boot"`
}

// device is a device of the mount table (major<<32|minor) as text.
func device(dev uint64) string { return fmt.Sprintf("%d:%d", dev>>32, uint32(dev)) }

// load returns the freezes that may stand. What cannot be read is said: a person can end it.
func (f *Freezer) load(ctx context.Context) ([]record, error) {
	values, err := f.c.Journal.LoadBucket(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("load which file systems are frozen: %w", err)
	}
	unreadable := func(dev string, why any) {
		f.c.Logger.Error("record of a freeze cannot be read; where programs hang, run fsfreeze --unfreeze", "device", dev,
			"err", why)
	}
	for dev, why := range values.Unreadable {
		unreadable(dev, why)
	}
	var all []record
	for _, dev := range slices.Sorted(maps.Keys(values.Sound)) {
		var r record
		err := json.Unmarshal(values.Sound[dev], &r)
		switch {
		case err == nil && r.Version != version:
			err = fmt.Errorf("version %d: expected %d", r.Version, version)
		case err == nil && (r.Dev != dev || r.Path == ""):
			err = fmt.Errorf("device %q, path %q", r.Dev, r.Path)
		}
		if err != nil {
			unreadable(dev, err)
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

func (f *Freezer) write(ctx context.Context, r record) error {
	value, err := json.Marshal(r)
	if err == nil {
		err = f.c.Journal.CommitBucket(ctx, bucket, map[string][]byte{r.Dev: value})
	}
	if err != nil {
		return fmt.Errorf("write that it is to be frozen: %w", err)
	}
	return nil
}

func (f *Freezer) drop(ctx context.Context, r record) error {
	return f.c.Journal.CommitBucket(ctx, bucket, map[string][]byte{r.Dev: nil})
}
