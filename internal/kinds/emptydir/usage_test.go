package emptydir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/quota"
)

func (n *node) usage() emptydir.Usage {
	n.t.Helper()
	u, err := newDriver(n.layout).Usage(n.t.Context(), n.volume, pod)
	if err != nil {
		n.t.Fatal(err)
	}
	return u
}

// TestWhatIsOverItsLimitIsTold: without a quota, a volume on disk may grow over its
// limit; the driver reports that and removes nothing.
// Items: M05.
// Attacks: C14.
func TestWhatIsOverItsLimitIsTold(t *testing.T) {
	n := newNode(t, `{"sizeLimit": "1Mi"}`)
	n.publish()
	empty := n.usage()
	if empty.Over() || empty.Limit != 1<<20 || empty.Total != 1<<20 || empty.Available <= 0 || empty.InodesUsed != 1 {
		t.Errorf("empty: %+v", empty)
	}
	f := filepath.Join(n.target(), "f")
	if err := os.WriteFile(f, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile(f, os.O_WRONLY, 0)
	if err := errors.Join(err, full.Sync(), full.Close()); err != nil {
		t.Fatal(err) // before the sync the file system may not report the blocks
	}
	if u := n.usage(); !u.Over() || u.Used < 2<<20 || u.Available != 0 || u.InodesUsed != 2 {
		t.Errorf("full: %+v", u)
	}
	n.publish()
	if st, err := os.Stat(f); err != nil || st.Size() != 2<<20 {
		t.Errorf("after another publish: %v, %v", st, err)
	}
}

// TestMemorySaysItselfHowFullItIs: the numbers are those of its file system, which
// never exceeds its limit.
//
// Attacks: C14.
func TestMemorySaysItselfHowFullItIs(t *testing.T) {
	n := newNode(t, `{"medium": "Memory", "sizeLimit": "1Mi"}`)
	n.publish()
	err := os.WriteFile(filepath.Join(n.target(), "f"), make([]byte, 2<<20), 0o600)
	if u := n.usage(); err == nil || u.Over() || u.Total != 1<<20 || u.Used != 1<<20 || u.Available != 0 {
		t.Errorf("%v, %+v", err, u)
	}
}

// TestAVolumeIsMadeAndGoesWhereThereAreNoQuotas: the driver then only measures the
// limit.
// Items: M05.
func TestAVolumeIsMadeAndGoesWhereThereAreNoQuotas(t *testing.T) {
	n := newNode(t, `{"sizeLimit": "1Mi"}`)
	if err := os.MkdirAll(n.layout.Pods(), 0o700); err != nil {
		t.Fatal(err)
	}
	d := emptydir.New(emptydir.Config{Layout: n.layout, Kernel: mount.New(n.layout.Root), Quotas: quota.New()})
	for range 2 {
		if err := d.Publish(t.Context(), n.volume, pod); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(n.scratch(), "project")); !os.IsNotExist(err) {
		t.Errorf("a record of a project: %v", err)
	}
	for range 2 {
		if err := d.Unpublish(t.Context(), n.volume, pod); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(n.layout.Pods()); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
