package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// snapshot diff lists exactly the blocks that were written between two snapshots, even if
// the driver's stream breaks. A copy of the first snapshot with these ranges of the second
// equals the second.
func TestChangedBlocksMakeACopy(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		if !n.driver.local && !n.driver.strict {
			t.Log("the driver may not tell of blocks")
			return
		}
		const size = 32 << 20
		use := func(pod, claim string, with func(device *os.File)) {
			n.Apply(harness.Pod(pod, volume{Name: "disk", Source: "persistentVolumeClaim: {claimName: " + claim + "}", Block: true}))
			n.Mounted(pod)
			device, err := os.OpenFile(n.HostPath(pod, "disk"), os.O_RDWR, 0)
			must(t, err)
			with(device)
			must(t, device.Close())
			n.DeletePods(pod)
			n.NoVolumes()
		}
		fill := func(c byte, blocks ...int64) func(*os.File) {
			return func(device *os.File) {
				for _, at := range blocks {
					if _, err := device.WriteAt(bytes.Repeat([]byte{c}, 4096), at*4096); err != nil {
						t.Fatal(err)
					}
				}
				must(t, device.Sync())
			}
		}
		n.Apply(n.driver.class(), claim("disk", "32Mi", block, rwo))
		use("writer", "disk", fill('a', 0, 1, 100, 4000))
		n.Do("", "snapshot", "create", "pvc/disk", "--name", "monday")
		// More ranges than a message of the strict driver has, so that the stream can break
		// after its second message.
		changed := []int64{1, 2, 100, 8190} // without the last block, so that ranges follow after the break
		for at := int64(200); at < 260; at += 2 {
			changed = append(changed, at)
		}
		use("writer", "disk", fill('b', changed...))
		use("writer", "disk", fill('a', 0)) // writes the same content
		n.Do("", "snapshot", "create", "pvc/disk", "--name", "tuesday")

		held := n.driver.proxy.hold("GetMetadataDelta", true)
		close(held.on)
		told := map[int64]bool{}
		type byteRange struct{ Offset, Size int64 }
		var ranges []byteRange
		for line := range strings.Lines(n.Do("", "snapshot", "diff", "monday", "tuesday", "-o", "json")) {
			var r byteRange
			must(t, json.Unmarshal([]byte(line), &r))
			ranges = append(ranges, r)
			for at := r.Offset; at < r.Offset+r.Size; at += 4096 {
				told[at/4096] = true
			}
		}
		for _, at := range changed {
			if !told[at] {
				t.Errorf("block %d was written, and is not told", at)
			}
		}
		if len(told) != len(changed) {
			t.Errorf("%d blocks are told, of %d that were written: %v", len(told), len(changed), ranges)
		}
		if n.driver.proxy.count("GetMetadataDelta") != 2 {
			t.Errorf("%d calls, want 2: the first one broke", n.driver.proxy.count("GetMetadataDelta"))
		}
		if r := n.CLI("", "snapshot", "diff", "monday"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "0 ") || !strings.Contains(r.Stderr, "bytes of a volume of 33554432") {
			t.Errorf("of one: %+v", r)
		}
		for _, wrong := range [][]string{{"tuesday", "monday"}, {"monday", "absent"}} {
			if r := n.CLI("", "snapshot", "diff", wrong[0], wrong[1]); r.Code == 0 || !strings.Contains(r.Stderr, "snapshot default/"+wrong[1]) {
				t.Errorf("diff %v: %+v", wrong, r)
			}
		}

		n.Do("", "snapshot", "restore", "monday", "pvc/older")
		n.Do("", "snapshot", "restore", "tuesday", "pvc/newer")
		content := func(claim string) []byte {
			b := make([]byte, size)
			use("reader", claim, func(device *os.File) {
				if _, err := device.ReadAt(b, 0); err != nil {
					t.Fatal(err)
				}
			})
			return b
		}
		backup, newer := content("older"), content("newer")
		if bytes.Equal(backup, newer) {
			t.Error("the two are the same before anything is copied")
		}
		for _, r := range ranges {
			copy(backup[r.Offset:r.Offset+r.Size], newer[r.Offset:])
		}
		if !bytes.Equal(backup, newer) {
			t.Error("a copy of the older one with the ranges of the newer one is another")
		}
		n.DeleteClaims("older", "newer")
		n.Do("", "delete", "snapshot", "--all", "--yes")
		n.DeleteClaims("disk")
		n.nothingLeft()
	})
}
