package wire

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// ServeHelper runs a node's calls on storage in the process that [Config.Helper] started. It returns when
// the node is gone; the process should then exit.
func ServeHelper(ctx context.Context) error { return away.Serve(ctx) }

// retryAt ends the back-off of a volume when a call for it that had hung returns. key is the volume's id
// or one of its paths.
func retryAt(m *manager.Manager, key string) {
	key = mount.PathOf(key)
	for _, v := range m.Volumes() {
		at := string(v.Volume.ID) == key || v.Volume.Spec.StagePath == key
		for _, mount := range v.Volume.Mounts {
			at = at || mount.Target == key
		}
		if at {
			m.RetryNow(v.Volume.ID)
		}
	}
}
