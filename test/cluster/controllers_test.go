//go:build cluster

package cluster

import "path/filepath"

const driverName = "local.csi-volmgr.dev"

// provisions starts external-provisioner, which makes the local driver's volumes on the
// node, and external-attacher, which marks each as attached, since the driver attaches
// none.
func (n *node) provisions() {
	n.t.Helper()
	address := "--csi-address=" + filepath.Join(n.dir, "root", "plugins", driverName, "csi.sock")
	startSidecar(n.t, n.dir, "csi-provisioner", []string{"NODE_NAME=" + n.name}, address, "--node-deployment", "--strict-topology", "--immediate-topology=false")
	startSidecar(n.t, n.dir, "csi-attacher", nil, address)
}
