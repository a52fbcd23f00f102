package crash

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// nothingLeft ends the daemon and checks that nothing is left of any volume.
func (n *node) nothingLeft() {
	n.driver.Stop()
	n.daemon.Stop()
	n.NothingHeld()
	n.end()
}

// noFilesNorRecords checks the root directory, the state directory and the journal.
func (n *node) noFilesNorRecords() {
	n.noFiles()
	journal, file := n.Journal()
	defer journal.Close()
	loaded, err := journal.Load(context.Background())
	damaged, globErr := filepath.Glob(file + ".damaged*")
	if err != nil || globErr != nil || len(damaged) != n.damages || (journal.Recovery().Why != "") != (n.damages > 0) {
		n.T.Errorf("the journal was damaged %d times by the test, and says %q, %v: %v, %v", n.damages, journal.Recovery().Why, damaged, err, globErr)
	}
	for id := range loaded.Volumes {
		n.T.Errorf("record left: %s", id)
	}
	for id, why := range loaded.Quarantined {
		n.T.Errorf("record that cannot be read: %s: %s", id, why)
	}
}

// noFiles fails the test for every file, and every directory of a volume, that is left.
func (n *node) noFiles() {
	keep := []string{"pods", "plugins", "plugins_registry", "plugins/kubernetes.io", "plugins/kubernetes.io/image", "plugins/kubernetes.io/csi", "plugins/local.csi-volmgr.dev"}
	err := filepath.WalkDir(n.Path("root"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(n.Path("root"), path)
		if err != nil || rel == "." || slices.Contains(keep, rel) || d.Type()&fs.ModeSocket != 0 {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(rel, "plugins/kubernetes.io/csi/volumeDevices") && strings.Count(rel, "/") < 5 || filepath.Dir(rel) == "plugins/kubernetes.io/csi") {
			return nil
		}
		n.T.Errorf("left: %s", rel)
		return nil
	})
	if err != nil {
		n.T.Error(err)
	}
	err = filepath.WalkDir(n.Path("state"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(filepath.Base(path), ".db") && !strings.HasSuffix(path, ".lock") && !slices.Contains([]string{"lock", "audit.log", "objects.log", "storage-id"}, filepath.Base(path)) {
			n.T.Errorf("left in the state directory: %s", path)
		}
		return err
	})
	if err != nil {
		n.T.Error(err)
	}
}
