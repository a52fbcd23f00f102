package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/pkg/filelock"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Claim makes the node's directories and takes the root directory for this process
// alone, for as long as the file is open: two managers on one root would take each
// other's mounts away.
func Claim(layout state.Layout, registration string) (*os.File, error) {
	if path := Serving(layout.Root); path != "" {
		return nil, fmt.Errorf("use root directory %s: %w (it answers at %s): choose one of csi-volmgr's own, for example "+
			"--root-dir=%s, and register drivers there",
			layout.Root, ErrKubelet, path, filepath.Join(layout.Plugins(), "csi-volmgr"))
	}
	for _, dir := range []string{layout.Root, layout.Pods(), layout.Plugins(), registration} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("make the node's directories: %w", err)
		}
	}
	root, err := os.Open(layout.Root)
	if err != nil {
		return nil, fmt.Errorf("open the root directory: %w", err)
	}
	if err = filelock.Take(root); errors.Is(err, filelock.ErrHeld) { // which closes the file where it fails
		err = errors.New("another csi-volmgr has it")
	}
	if err != nil {
		return nil, fmt.Errorf("use root directory %s: %w", layout.Root, err)
	}
	return root, nil
}
