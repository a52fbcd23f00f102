package node

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/netfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/nfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Lacks returns the programs without which no volume of a built-in kind can be
// mounted, and that this node does not have now.
func (n *Node) Lacks(kind state.DriverName) []string {
	needs := map[state.DriverName][]string{
		nfs.Kind: {"mount.nfs"}, netfs.CephFS: {"mount.ceph"}, netfs.GlusterFS: {"mount.glusterfs"}, iscsi.Kind: {"iscsiadm"},
	}
	run := program.Runner{Dirs: n.programs}
	return slices.DeleteFunc(needs[kind], run.Has)
}
