package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ObjectChanged reacts to a change of the catalog. On nil it does nothing.
func (c *Cluster) ObjectChanged(key source.Key) {
	if c == nil {
		return
	}
	switch key.Kind {
	case resolve.KindClaim:
		c.reportSize(key)
	case resolve.KindVolume:
		if pv, ok := c.cfg.Catalog.Get(key).(*corev1.PersistentVolume); ok && pv.Spec.ClaimRef != nil {
			ref := pv.Spec.ClaimRef
			c.reportSize(source.Key{Kind: resolve.KindClaim, Namespace: ref.Namespace, Name: ref.Name})
		}
	case resolve.KindCSIDriver:
		c.Report.Wake() // it tells whether volumes are attached, and how often to ask for limits
	case resolve.KindVolumeAttachment:
		c.attachmentChanged(key)
	}
}

// reportSize reports a volume's size in its claim if the claim shows a resize that the node has done
// already, for example because the daemon ended before it was written.
func (c *Cluster) reportSize(key source.Key) {
	if c.cfg.Catalog.Provider(key) != source.Kube {
		return
	}
	claim, ok := c.cfg.Catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	if _, resizing := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; !resizing {
		return
	}
	volume := source.Key{Kind: resolve.KindVolume, Name: claim.Spec.VolumeName}
	pv, ok := c.cfg.Catalog.Get(volume).(*corev1.PersistentVolume)
	if !ok || pv.Spec.CSI == nil {
		return
	}
	v, ok := c.cfg.Loop.Volume(state.SharedID(state.DriverName(pv.Spec.CSI.Driver), pv.Spec.CSI.VolumeHandle))
	if ok && v.Volume.InUse() && v.Volume.SizeBytes > 0 && v.Volume.SizeBytes >= pv.Spec.Capacity.Storage().Value() {
		of := report.Claim{Namespace: key.Namespace, Name: key.Name, Volume: claim.Spec.VolumeName}
		c.Report.Expanded(of, v.Volume.SizeBytes)
	}
}

// limitPeriod returns how often to ask a driver for its limit of volumes.
func (c *Cluster) limitPeriod(driver state.DriverName) time.Duration {
	d, ok := c.cfg.Catalog.Get(source.Key{Kind: resolve.KindCSIDriver, Name: string(driver)}).(*storagev1.CSIDriver)
	if !ok || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*d.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// attachmentChanged asks a driver for its limit again if an attacher was told that the node has no room.
func (c *Cluster) attachmentChanged(key source.Key) {
	va, ok := c.cfg.Catalog.Get(key).(*storagev1.VolumeAttachment)
	if ok && va.Spec.NodeName == c.cfg.NodeName && resolve.NoRoom(va) {
		c.Report.Full(state.DriverName(va.Spec.Attacher))
	}
}
