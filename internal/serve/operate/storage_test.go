package operate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Only volumes and snapshots without an owner remain, which no object and no record of the loop
// names; a snapshot with a volume's handle is not that volume, nor is another driver's volume.
func TestWhatNoRecordKnowsIsLeft(t *testing.T) {
	got := unowned([]controller.Listing{
		{Driver: "a.example", Unsure: "claim default/new", Stored: []controller.Stored{
			{Handle: "owned", Owner: "claim default/a"},
			{Handle: "static"},
			{Handle: "lost", SizeBytes: 7},
			{Handle: "static", Snapshot: true, Of: "owned"},
			{Handle: "kept", Snapshot: true, Owner: "snapshot default/s"},
		}},
		{Driver: "b.example", Stored: []controller.Stored{{Handle: "static"}}, Unlisted: "it cannot list snapshots (LIST_SNAPSHOTS)"},
	}, map[state.VolumeID]bool{state.SharedID("a.example", "static"): true})
	want := server.Unowned{
		Items: []server.Stored{
			{Kind: "volume", Driver: "a.example", Handle: "lost", SizeBytes: 7, MayBe: "claim default/new"},
			{Kind: "snapshot", Driver: "a.example", Handle: "static", Of: "owned", MayBe: "claim default/new"},
			{Kind: "volume", Driver: "b.example", Handle: "static"},
		},
		Unlisted: []server.Unlisted{{Driver: "b.example", Why: "it cannot list snapshots (LIST_SNAPSHOTS)"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
