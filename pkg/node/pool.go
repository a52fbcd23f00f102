package node

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/away"
	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
)

// ServeHelper does a node's calls on storage in the process that [Config.Helper]
// started, until the node is gone; the process is to end when it returns.
func ServeHelper(ctx context.Context) error { return away.Serve(ctx) }

func (n *Node) newHelpers() *isolate.Pool {
	return isolate.New(isolate.Config{
		Command: n.cfg.Helper, Service: away.Service(), Logger: n.log,
		OnReturn: n.retryAt,
	})
}

// retryAt ends the pauses of the volume that a call has returned for after all:
// key is its id, or one of its paths.
func (n *Node) retryAt(key string) {
	key = mount.PathOf(key)
	for _, v := range n.manager.Volumes() {
		at := string(v.Volume.ID) == key || v.Volume.Spec.StagePath == key
		for _, m := range v.Volume.Mounts {
			at = at || m.Target == key
		}
		if at {
			n.manager.RetryNow(v.Volume.ID)
		}
	}
}

// Helpers returns what the node's helpers are at.
func (n *Node) Helpers() isolate.Stats { return n.helpers.Stats() }
