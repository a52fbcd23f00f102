//go:build cluster

package cluster

import "path/filepath"

const driverName = "local.csi-volmgr.dev"

// provisions has external-provisioner make the local driver's volumes on the node, and
// external-attacher say of each that it is attached, since the driver attaches none.
func (n *node) provisions() {
	n.t.Helper()
	address := "--csi-address=" + filepath.Join(n.dir, "root", "plugins", driverName, "csi.sock")
	startSidecar(n.t, n.dir, "csi-provisioner", []string{"NODE_NAME=" + n.name}, address, "--node-deployment", "--strict-topology", "--immediate-topology=false")
	startSidecar(n.t, n.dir, "csi-attacher", nil, address)
}
