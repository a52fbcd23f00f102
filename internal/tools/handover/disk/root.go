package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/internal/host/filelock"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Claim creates the node's directories and locks the root directory for this process until the file
// is closed. Two managers on one root would unmount each other's volumes.
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
	if err = filelock.Take(root); errors.Is(err, filelock.ErrHeld) { // Take closes the file if it fails
		err = errors.New("another csi-volmgr uses it" + filelock.Holder(layout.Root))
	}
	if err != nil {
		return nil, fmt.Errorf("use root directory %s: %w", layout.Root, err)
	}
	return root, nil
}
