package node

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// usage tells the controller who uses claims and volumes. The controller is made before the manager.
type usage struct{ n *Node }

// Wanted implements controller.Usage: it names a pod of the sources that names the claim.
func (u usage) Wanted(claim controller.Key) string {
	if pod, found := u.Wanter(claim); found {
		return pod.String()
	}
	return ""
}

// Wanter implements operate.Usage: it returns the pod that Wanted names.
func (u usage) Wanter(claim controller.Key) (pod source.Key, found bool) {
	for _, p := range u.n.catalog.Pods() {
		if p.Namespace != claim.Namespace {
			continue
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name ||
				v.Ephemeral != nil && p.Name+"-"+v.Name == claim.Name
		}) {
			return source.Key{Kind: resolve.KindPod, Namespace: p.Namespace, Name: p.Name}, true
		}
	}
	return source.Key{}, false
}

// InUse implements controller.Usage: it names what uses, or may use, the volume on this node.
func (u usage) InUse(id state.VolumeID, name string) string {
	driver, handle, _ := strings.Cut(string(id), "^") // the form of state.SharedID
	return u.n.manager.UsedBy(id, name,
		u.n.layout.StagePath(state.Filesystem, state.DriverName(driver), handle, name),
		u.n.layout.StagePath(state.Block, state.DriverName(driver), handle, name))
}

// translated lists the in-tree kinds of volumes that are translated to CSI.
func (c Config) translated() []string {
	if c.Translate == nil {
		return translate.Kinds()
	}
	return c.Translate
}
