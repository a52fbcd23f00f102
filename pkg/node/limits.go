package node

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// limitPeriod is how often a driver is to be asked for its limit of volumes.
func (n *Node) limitPeriod(driver state.DriverName) time.Duration {
	d, ok := n.catalog.Get(source.Key{Kind: resolve.KindCSIDriver, Name: string(driver)}).(*storagev1.CSIDriver)
	if !ok || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// attachmentChanged has a driver asked that has no room, as an attacher was told.
func (n *Node) attachmentChanged(key source.Key) {
	va, ok := n.catalog.Get(key).(*storagev1.VolumeAttachment)
	if ok && n.report != nil && va.Spec.NodeName == n.cfg.Name && resolve.NoRoom(va) {
		n.report.Full(state.DriverName(va.Spec.Attacher))
	}
}
