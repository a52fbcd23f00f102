package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// nothingLeft ends the daemon and fails the test unless nothing is left of any
// volume: no mount, no directory, no loop device, no volume of the driver, no
// record.
func (n *node) nothingLeft() {
	n.t.Helper()
	n.noVolumes()
	if n.driver != nil {
		if ids := n.driver.proxy.volumes(n.t); len(ids) != 0 {
			n.t.Errorf("volumes left in the driver: %q", ids)
		}
		if n.driver.strict {
			n.allTakenBack()
		}
	}
	n.daemon.stop()
	if left := mountsBelow(n.t, n.dir); len(left) != 0 {
		n.t.Errorf("mounts left: %q", left)
	}
	if left := loopsBelow(n.t, n.dir); len(left) != 0 {
		n.t.Errorf("loop devices left: %q", left)
	}
	for _, path := range n.tree() {
		n.t.Errorf("left: %s", path)
	}
	for id := range n.records() {
		n.t.Errorf("record left: %s", id)
	}
}

// tree lists what is below the root that belongs to a volume, not to the node
// or a driver as such.
func (n *node) tree() (left []string) {
	n.t.Helper()
	keep := []string{
		".", "pods", "plugins", "plugins_registry", "plugins/kubernetes.io", "plugins/kubernetes.io/csi",
		"plugins/kubernetes.io/csi/volumeDevices", "plugins/kubernetes.io/csi/volumeDevices/staging",
		"plugins/kubernetes.io/csi/volumeDevices/publish", "plugins/kubernetes.io/image",
	}
	err := filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we looked: the daemon may still be clearing up
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(n.root, path)
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
		n.t.Fatal(err)
	}
	return left
}

// records reads the journal of a daemon that has ended.
func (n *node) records() map[state.VolumeID]state.Volume {
	n.t.Helper()
	files, err := filepath.Glob(n.path("state/*.db"))
	if err != nil || len(files) != 1 {
		n.t.Fatalf("journal: got %q, %v, want one file", files, err)
	}
	journal, err := state.OpenBolt(files[0])
	if err != nil {
		n.t.Fatal(err)
	}
	defer journal.Close()
	loaded, err := journal.Load(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	if len(loaded.Quarantined) != 0 {
		n.t.Errorf("records that cannot be read: %v", loaded.Quarantined)
	}
	return loaded.Volumes
}

// mountsBelow lists the mount points below dir, the last made first.
func mountsBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	slices.Reverse(found)
	return found
}

// loopsBelow lists the loop devices of files below dir.
func loopsBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// One that has been detached since it was listed is none.
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), dir+"/") {
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found
}

func detachLoop(device string) {
	if f, err := os.Open(device); err == nil {
		unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
		f.Close()
	}
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
