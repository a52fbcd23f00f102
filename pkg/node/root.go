package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/pkg/filelock"
)

// ErrKubelet means that a kubelet runs on the root directory.
var ErrKubelet = errors.New("a kubelet runs on this root directory")

// kubeletSockets are served by every kubelet below its root directory while it runs.
var kubeletSockets = [...]string{"pod-resources/kubelet.sock", "device-plugins/kubelet.sock"}

// claimRoot makes the root directory and takes it for this process alone: two
// managers on one root would take each other's mounts away.
func (n *Node) claimRoot() error {
	for _, s := range kubeletSockets {
		path := filepath.Join(n.cfg.Root, s)
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return fmt.Errorf("use root directory %s: %w (it answers at %s): choose one of csi-volmgr's own, for example "+
				"--root-dir=%s, and register drivers there",
				n.cfg.Root, ErrKubelet, path, filepath.Join(n.cfg.Root, "plugins", "csi-volmgr"))
		}
	}
	for _, dir := range []string{n.cfg.Root, n.layout.Pods(), n.layout.Plugins(), n.cfg.RegistrationDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make the node's directories: %w", err)
		}
	}
	root, err := os.Open(n.cfg.Root)
	if err != nil {
		return fmt.Errorf("open the root directory: %w", err)
	}
	if err := filelock.Take(root); errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("use root directory %s: another csi-volmgr has it", n.cfg.Root)
	} else if err != nil {
		return fmt.Errorf("use the root directory: %w", err)
	}
	n.root = root
	return nil
}
