package node

import (
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The daemon ended after the record of a volume said that it has grown, and before
// its claim's did: nothing would tell the claim any more.
func TestAClaimHearsOfASizeThatWasTheRecordsAlone(t *testing.T) {
	c := dirs(t)
	c.LocalDriver = true
	n, stop := start(t, c)
	apply(t, n, ephemeralPod)
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Fatal(err)
	}
	stop()
	const grown = 2 << 20
	b, err := state.OpenBolt(filepath.Join(c.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := b.Load(t.Context())
	if err != nil || len(loaded.Volumes) != 1 {
		t.Fatalf("%d volumes, %v", len(loaded.Volumes), err)
	}
	for id, v := range loaded.Volumes {
		v.SizeBytes = grown
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{id: &v}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	n, _ = start(t, c)
	for {
		changed := n.changed.next()
		claims := n.Views().Claims()
		if len(claims) == 1 && claims[0].NodeBytes == grown {
			return
		}
		select {
		case <-changed:
		case <-within(t).Done():
			t.Fatalf("claims: %+v", claims)
		}
	}
}
