package main

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// A restored claim is as large as what its snapshot needs and as the claim that the snapshot is of.
func TestTheSizeOfARestoredClaim(t *testing.T) {
	for _, tt := range []struct{ snapshot, claim, want int64 }{
		{143, 10 << 30, 10 << 30}, // an archive of a volume
		{10 << 30, 5 << 30, 10 << 30},
		{10 << 30, 0, 10 << 30}, // the claim is gone
		{0, 5 << 30, 5 << 30},
	} {
		if got := restoredBytes(server.SnapshotStatus{RestoreBytes: tt.snapshot}, server.ClaimStatus{CapacityBytes: tt.claim}); got != tt.want {
			t.Errorf("snapshot of %d bytes, claim of %d: %d, want %d", tt.snapshot, tt.claim, got, tt.want)
		}
	}
}
