package wire

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/host/freeze"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// newFreezer returns a freezer for the volumes of the manager, which is made later.
func newFreezer(n *Node) *freeze.Freezer {
	return freeze.New(freeze.Config{
		Journal: n.journal, Helpers: n.helpers, Boot: n.bootID, Pods: n.layout.Pods(), Logger: n.log,
		Mounts: func(ctx context.Context) ([]mount.Entry, error) { return n.kernel.List(ctx, "/") },
		Volumes: func() (all []freeze.Volume) {
			for _, v := range n.manager.Volumes() {
				all = append(all, freeze.Volume{Volume: v.Volume, Unknown: v.Quarantined})
			}
			return all
		},
		Never: []string{"/", "/var", "/var/log", "/run", "/tmp", n.cfg.Root, n.cfg.StateDir, n.cfg.RuntimeDir},
	})
}
