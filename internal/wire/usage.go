package wire

import (
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// usage tells the controller who uses claims and volumes. The controller is made before the manager.
type usage struct{ n *Node }

// Wanted implements controller.Usage: it names a pod of the sources that names the claim.
func (u usage) Wanted(claim controller.Key) string {
	if pod, found := u.n.catalog.UserOf(claim.Namespace, claim.Name); found {
		return pod.String()
	}
	return ""
}

// InUse implements controller.Usage: it names what uses, or may use, the volume on this node.
func (u usage) InUse(id state.VolumeID, name string) string {
	driver, handle, _ := strings.Cut(string(id), "^") // the form of state.SharedID
	return u.n.manager.UsedBy(id, name,
		u.n.layout.StagePath(state.Filesystem, state.DriverName(driver), handle, name),
		u.n.layout.StagePath(state.Block, state.DriverName(driver), handle, name))
}

// Listed implements controller.Usage: it names a PersistentVolume of another name that has the volume.
func (u usage) Listed(claim controller.Key, id state.VolumeID, name string) string {
	if key, found := u.n.catalog.Sharing(id, name, made.CatalogKey(claim)); found {
		return key.String()
	}
	return ""
}

// translated lists the in-tree kinds of volumes that are translated to CSI.
func (c Config) translated() []string {
	if c.Translate == nil {
		return translate.Kinds()
	}
	return c.Translate
}
