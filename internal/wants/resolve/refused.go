package resolve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// refused has the kinds that csi-volmgr deliberately does not serve or that
// Kubernetes removed, with the reason and what to use instead.
var refused = map[string]string{
	"flexVolume": "it is deprecated since Kubernetes 1.23 and runs a program of the node for each step; use " +
		"the vendor's CSI driver",
	"flocker": "Kubernetes 1.25 removed it, and there is no CSI driver for it; use another storage system's",
	"gitRepo": "it runs git as root on the node, and with it what a repository brings (CVE-2024-10220, " +
		"CVE-2025-1767), so Kubernetes disabled it in 1.33; clone into an emptyDir in an init container",
	"photonPersistentDisk": "it has not worked since Kubernetes 1.16, and there is no CSI driver for it; " +
		"on vSphere use csi.vsphere.vmware.com",
	"quobyte": "Kubernetes 1.25 removed it; use the CSI driver csi.quobyte.com",
	"scaleIO": "Kubernetes 1.22 removed it; use the CSI driver csi-vxflexos.dellemc.com (Dell PowerFlex)",
	"storageos": "Kubernetes 1.25 removed it; its CSI driver csi.storageos.com is not maintained, so use another " +
		"storage system's",
}

// lacks says why this node does not serve a kind; have lists the kinds that it serves.
func (r *resolver) lacks(kind string, have []string) string {
	if why, ok := refused[kind]; ok {
		return fmt.Sprintf("a volume of kind %s is refused: %s", kind, why)
	}
	if translate.Has(kind) {
		return fmt.Sprintf("volumes of kind %s are not translated to their CSI driver on this node (--translate lists the "+
			"kinds); want one of %s",
			kind, strings.Join(slices.Sorted(slices.Values(have)), ", "))
	}
	return fmt.Sprintf("volumes of kind %s are not served on this node; want one of %s", kind,
		strings.Join(slices.Sorted(slices.Values(have)), ", "))
}
