package freeze

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bucket is the journal's bucket of freezes, whose keys are devices.
const bucket = "frozen"

// version is the version of the records that this code writes.
const version = 1

// record is one freeze, stored in the journal before it is made.
type record struct {
	Version int            `json:"version"`
	Volume  state.VolumeID `json:"volume"`
	Path    string         `json:"path"`
	// Dev is the device of the file system as in the mount table (major:minor).
	Dev    string `json:"dev"`
	FSType string `json:"fsType"`
	Boot   string `json:"boot"`
}

// load returns the freezes that may be in effect. It logs unreadable records, because a
// person can end those freezes.
func (f *Freezer) load(ctx context.Context) ([]record, error) {
	values, err := f.c.Journal.LoadBucket(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("load the records of freezes: %w", err)
	}
	unreadable := func(dev string, why any) {
		f.c.Logger.Error("cannot read the record of a freeze; if programs hang on the device, run fsfreeze --unfreeze",
			"device", dev, "err", why)
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
		return fmt.Errorf("record the freeze in the journal: %w", err)
	}
	return nil
}

func (f *Freezer) drop(ctx context.Context, r record) error {
	return f.c.Journal.CommitBucket(ctx, bucket, map[string][]byte{r.Dev: nil})
}
