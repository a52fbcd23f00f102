package crash

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// nothingLeft ends the daemon and looks for what is left of any volume.
func (n *node) nothingLeft() {
	n.driver.stop(n.t)
	n.daemon.stop(n.t)
	for _, m := range n.mounts() {
		n.t.Errorf("mount left: %s", m)
	}
	for _, dev := range n.loops() {
		n.t.Errorf("loop device left: %s", dev)
	}
	n.end()
}

// noFilesNorRecords looks into the root directory and the journal.
func (n *node) noFilesNorRecords() {
	n.noFiles()
	files, err := filepath.Glob(n.path("state/*.db"))
	if err != nil || len(files) != 1 {
		n.t.Fatalf("journal: %q, %v", files, err)
	}
	journal, err := state.OpenBolt(files[0])
	if err != nil {
		n.t.Fatal(err)
	}
	defer journal.Close()
	loaded, err := journal.Load(context.Background())
	damaged, globErr := filepath.Glob(files[0] + ".damaged*")
	if err != nil || globErr != nil || len(damaged) != n.damages || (journal.Recovery().Why != "") != (n.damages > 0) {
		n.t.Errorf("the journal was damaged %d times by the test, and says %q, %v: %v, %v", n.damages, journal.Recovery().Why, damaged, err, globErr)
	}
	for id := range loaded.Volumes {
		n.t.Errorf("record left: %s", id)
	}
	for id, why := range loaded.Quarantined {
		n.t.Errorf("record that cannot be read: %s: %s", id, why)
	}
}

// noFiles fails the test for every file, and every directory of a volume, that is left.
func (n *node) noFiles() {
	keep := []string{"pods", "plugins", "plugins_registry", "plugins/kubernetes.io", "plugins/kubernetes.io/image", "plugins/kubernetes.io/csi", "plugins/local.csi-volmgr.dev"}
	err := filepath.WalkDir(n.path("root"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(n.path("root"), path)
		if err != nil || rel == "." || slices.Contains(keep, rel) || d.Type()&fs.ModeSocket != 0 {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(rel, "plugins/kubernetes.io/csi/volumeDevices") && strings.Count(rel, "/") < 5 || filepath.Dir(rel) == "plugins/kubernetes.io/csi") {
			return nil
		}
		n.t.Errorf("left: %s", rel)
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
	err = filepath.WalkDir(n.path("state"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(filepath.Base(path), ".db") && !strings.HasSuffix(path, ".lock") && !slices.Contains([]string{"lock", "audit.log", "objects.log"}, filepath.Base(path)) {
			n.t.Errorf("left in the state directory: %s", path)
		}
		return err
	})
	if err != nil {
		n.t.Error(err)
	}
}

func (n *node) mounts() (found []string) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Error(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.dir+"/") {
			found = append(found, f[4])
		}
	}
	slices.Reverse(found)
	return found
}

func (n *node) loops() (found []string) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		n.t.Error(err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), n.dir+"/") {
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found
}
