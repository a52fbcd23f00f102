package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/drivertest/disktest"
)

// Another node made a file system on a disk that this node remembers as blank, since a
// process keeps the device open and the kernel its cache. The disk is not formatted.
//
// Faults: A029.
func TestBlankDiskInTheCacheIsReadAgain(t *testing.T) {
	prepare := map[string]func(n *disktest.Node, device string) error{
		"disk": func(n *disktest.Node, _ string) error {
			_, err := stage(n, ext4, "sda")
			return err
		},
		"device": func(n *disktest.Node, device string) error {
			return disk.Device{Path: device, Run: n.Stager().Host.Run}.Prepare(n.Context(), ext4)
		},
	}
	for name, prepare := range prepare {
		t.Run(name, func(t *testing.T) {
			n := disktest.New(t)
			device := n.Disk(wwid, "sda")
			holder, err := os.Open(device)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Close()
			if _, err := holder.Read(make([]byte, 16<<20)); err != nil {
				t.Fatal(err)
			}
			image, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop", "backing_file"))
			if err != nil {
				t.Fatal(err)
			}
			put(t, strings.TrimSpace(string(image)), 1<<20, []byte("precious"))
			err = prepare(n, device)
			if calls := made(n.Calls()); len(calls) != 0 {
				t.Errorf("run %q (%v)", calls, err)
			}
		})
	}
}
