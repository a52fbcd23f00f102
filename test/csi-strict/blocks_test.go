package csistrict

import (
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// A request for blocks names snapshots of one volume, the older one first, and begins within it.
func TestRequestsForBlocksAreJudged(t *testing.T) {
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	snapshots := map[string]*Snapshot{
		"old": {ID: "old", Source: "v", SizeBytes: 10, Created: day}, "new": {ID: "new", Source: "v", SizeBytes: 20, Created: day.Add(time.Hour)},
		"other": {ID: "other", Source: "w", SizeBytes: 20, Created: day.Add(time.Hour)},
	}
	delta := func(base, target string, from int64) proto.Message {
		return &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target, StartingOffset: from}
	}
	secret := map[string]map[string]string{"GetMetadataDelta": {"password": "x"}}
	for what, c := range map[string]struct {
		script Script
		req    proto.Message
		want   string
	}{
		"a delta":         {Script{}, delta("old", "new", 20), ""},
		"one":             {Script{}, &csi.GetMetadataAllocatedRequest{SnapshotId: "old"}, ""},
		"one that is not": {Script{}, &csi.GetMetadataAllocatedRequest{SnapshotId: "absent"}, ""},
		"no id":           {Script{}, &csi.GetMetadataAllocatedRequest{}, "N-24"},
		"no base":         {Script{}, delta("", "new", 0), "N-24"},
		"no target":       {Script{}, delta("old", "", 0), "N-24"},
		"two volumes":     {Script{}, delta("old", "other", 0), "N-24"},
		"backwards":       {Script{}, delta("new", "old", 0), "N-24"},
		"twice":           {Script{}, delta("new", "new", 0), "N-24"},
		"beyond":          {Script{}, delta("old", "new", 21), "N-24"},
		"before":          {Script{}, delta("old", "new", -1), "N-24"},
		"negative":        {Script{}, &csi.GetMetadataAllocatedRequest{SnapshotId: "old", MaxResults: -1}, "N-24"},
		"without ability": {Script{Without: []string{metadataService}}, delta("old", "new", 0), "N-13"},
		"without secret":  {Script{Secrets: secret}, delta("old", "new", 0), "N-34"},
	} {
		k := newCourt(c.script)
		k.model.Snapshots = snapshots
		got := k.call(c.req, codes.OK)
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
