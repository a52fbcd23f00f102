package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// AttachmentKey returns the key of the VolumeAttachment of a volume on a node, with
// the name that Kubernetes' attach-detach controller gives it.
func AttachmentKey(driver state.DriverName, handle, node string) Key {
	sum := sha256.Sum256([]byte(handle + string(driver) + node))
	return Key{Kind: KindVolumeAttachment, Name: "csi-" + hex.EncodeToString(sum[:])}
}

// KindAttachmentsOf is the kind of a key for which [Objects].Get returns a list: the
// VolumeAttachments whose spec.source.persistentVolumeName is the key's name.
const KindAttachmentsOf = "attachments of volume"

// attachment returns the VolumeAttachment by which the volume is attached to this
// node, or nil. If it is nil and a cluster attaches volumes, the text says what the
// node's calls must wait for. The VolumeAttachment with the attach-detach
// controller's name has precedence over others whose spec names driver, node and volume.
func (r *resolver) attachment(s state.Spec) (*storagev1.VolumeAttachment, string) {
	key := AttachmentKey(s.Driver, s.Handle, r.config.NodeName)
	va, ok := r.objects.Get(key).(*storagev1.VolumeAttachment)
	if !ok {
		if va, ok = r.attachmentBySpec(s); ok {
			key.Name = va.Name
		}
	}
	if ok && va.Status.Attached && va.DeletionTimestamp == nil {
		return va, ""
	}
	switch {
	case !r.config.ClusterAttach:
		return nil, ""
	case !ok:
		why := r.objects.Unread(key)
		if why == "" {
			why = "not found"
		}
		return nil, fmt.Sprintf("waiting for %s: %s", key, why)
	case va.DeletionTimestamp != nil:
		return nil, fmt.Sprintf("waiting for %s: the existing one is being deleted", key)
	case NoRoom(va):
		return nil, fmt.Sprintf("waiting for %s: status.attachError: the driver has no room for another volume on this "+
			"node (ResourceExhausted): %s", key, va.Status.AttachError.Message)
	case va.Status.AttachError != nil:
		return nil, fmt.Sprintf("waiting for %s: status.attachError: %s", key, va.Status.AttachError.Message)
	}
	return nil, fmt.Sprintf("waiting for %s: status.attached: found false, want true", key)
}

// attachmentBySpec returns the VolumeAttachment whose spec names the volume, its
// driver and this node: the first by name that is attached, else the first.
func (r *resolver) attachmentBySpec(s state.Spec) (*storagev1.VolumeAttachment, bool) {
	list, ok := r.objects.Get(Key{Kind: KindAttachmentsOf, Name: s.Name}).(*storagev1.VolumeAttachmentList)
	if !ok {
		return nil, false
	}
	var found *storagev1.VolumeAttachment
	for i := range list.Items {
		va := &list.Items[i]
		if va.Spec.Attacher != string(s.Driver) || va.Spec.NodeName != r.config.NodeName {
			continue
		}
		if va.Status.Attached && va.DeletionTimestamp == nil {
			return va, true
		}
		if found == nil {
			found = va
		}
	}
	return found, found != nil
}

// unattached says why the volume is unusable: it must be attached, and csi-volmgr
// has no Controller service to attach it with.
func (r *resolver) unattached(s state.Spec) string {
	return fmt.Sprintf("CSIDriver %s: spec.attachRequired: found true, but the driver's socket on this node cannot "+
		"attach (no Controller service with PUBLISH_UNPUBLISH_VOLUME), and no VolumeAttachment has status.attached: true "+
		"for attacher %s, nodeName %s and persistentVolumeName %s: start the driver with its Controller service, apply "+
		"such a VolumeAttachment with its attachmentMetadata, or set attachRequired: false",
		s.Driver, s.Driver, r.config.NodeName, s.Name)
}

// resourceExhausted is the gRPC status code of that name.
const resourceExhausted = 8

// NoRoom reports whether the volume cannot be attached because the node already has
// as many volumes as the driver can serve there.
func NoRoom(va *storagev1.VolumeAttachment) bool {
	e := va.Status.AttachError
	return !va.Status.Attached && e != nil && e.ErrorCode != nil && *e.ErrorCode == resourceExhausted
}
