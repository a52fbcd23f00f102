package e2e

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// nothingLeft ends the daemon and fails the test if anything is left of a volume: a mount,
// a directory, a loop device, a volume of the driver, a record.
func (n *node) nothingLeft() {
	n.T.Helper()
	n.NoVolumes()
	if n.driver != nil {
		if ids := n.driver.proxy.volumes(n.T); len(ids) != 0 {
			n.T.Errorf("volumes left in the driver: %q", ids)
		}
		if n.driver.strict {
			n.allTakenBack()
		}
	}
	n.daemon.Stop()
	n.NothingHeld()
	for _, path := range n.tree() {
		n.T.Errorf("left: %s", path)
	}
	for id := range n.records() {
		n.T.Errorf("record left: %s", id)
	}
}

// tree returns the paths below the root that belong to volumes, not to the node or a
// driver.
func (n *node) tree() (left []string) {
	n.T.Helper()
	keep := []string{
		".", "pods", "plugins", "plugins_registry", "plugins/kubernetes.io", "plugins/kubernetes.io/csi",
		"plugins/kubernetes.io/csi/volumeDevices", "plugins/kubernetes.io/csi/volumeDevices/staging",
		"plugins/kubernetes.io/csi/volumeDevices/publish", "plugins/kubernetes.io/image",
	}
	err := filepath.WalkDir(n.Root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the daemon removed it meanwhile
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(n.Root, path)
		if err != nil {
			return err
		}
		parent := filepath.Dir(rel)
		isDriver := d.IsDir() && (parent == "plugins" || parent == "plugins/kubernetes.io/csi")
		if isDriver || slices.Contains(keep, rel) || d.Type()&fs.ModeSocket != 0 {
			return nil
		}
		left = append(left, rel)
		return nil
	})
	if err != nil {
		n.T.Fatal(err)
	}
	return left
}

// records reads the journal of a daemon that has ended.
func (n *node) records() map[state.VolumeID]state.Volume {
	n.T.Helper()
	journal, _ := n.Journal()
	defer journal.Close()
	loaded, err := journal.Load(n.T.Context())
	if err != nil {
		n.T.Fatal(err)
	}
	if len(loaded.Quarantined) != 0 {
		n.T.Errorf("records that cannot be read: %v", loaded.Quarantined)
	}
	return loaded.Volumes
}

// mountID returns the kernel's unique id of the mount that path is on.
func mountID(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID_UNIQUE, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		t.Fatalf("mount id of %s: %v", path, err)
	}
	return st.Mnt_id
}
