package resolve

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// checkFSType refuses a file system that does not live on a disk: the kernel would
// mount it without looking at the volume's device.
func checkFSType(field, fsType string) (Fault, bool) {
	return Fault{field + ".fsType", fsType, "one of " + strings.Join(diskfs.Types(), ", ")}, fsType != "" &&
		!diskfs.Has(fsType)
}

// staged resolves a volume of a built-in kind that is staged on the node before it is
// published for pods. The kind's driver checks the source.
func (r *resolver) staged(of state.DriverName, name string, src any, readOnly bool) (state.VolumeWant, error) {
	w, err := r.builtin(of, name, src)
	w.Spec.StagePath = r.config.Layout.BuiltinStagePath(of, w.ID)
	w.Mount.ReadOnly = readOnly
	return w, err
}

func (r *resolver) podISCSI(v *corev1.Volume, field string) (state.VolumeWant, error) {
	if f, bad := checkFSType(field, v.ISCSI.FSType); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	return r.iscsi(v.Name, v.ISCSI)
}

func (r *resolver) volumeISCSI(pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error) {
	s := pv.Spec.ISCSI
	if f, bad := checkFSType("spec.iscsi", s.FSType); bad {
		return state.VolumeWant{}, f, nil
	}
	w, err := r.iscsi(pv.Name, iscsiInline(s))
	w.Spec.StageRef = secretRef(s.SecretRef)
	return w, Fault{}, err
}

func (r *resolver) podFC(v *corev1.Volume, field string) (state.VolumeWant, error) {
	if f, bad := checkFSType(field, v.FC.FSType); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	return r.fc(v.Name, v.FC)
}

func (r *resolver) volumeFC(pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error) {
	if f, bad := checkFSType("spec.fc", pv.Spec.FC.FSType); bad {
		return state.VolumeWant{}, f, nil
	}
	w, err := r.fc(pv.Name, pv.Spec.FC)
	return w, Fault{}, err
}

// iscsi resolves a logical unit of an iSCSI target. The reference to its secret moves
// from the source to the spec.
func (r *resolver) iscsi(name string, src *corev1.ISCSIVolumeSource) (state.VolumeWant, error) {
	named := *src
	named.SecretRef = nil
	w, err := r.staged(kind.ISCSI, name, &named, src.ReadOnly)
	w.Spec.AttachName = r.attachName(kind.ISCSI, fmt.Sprintf("%s:%s:%d", src.TargetPortal, src.IQN, src.Lun))
	if src.SecretRef != nil {
		w.Spec.StageRef = state.SecretRef{Namespace: r.pod.Namespace, Name: src.SecretRef.Name}
	}
	return w, err
}

// iscsiInline converts a PersistentVolume's source to a pod's, without its secret.
func iscsiInline(s *corev1.ISCSIPersistentVolumeSource) *corev1.ISCSIVolumeSource {
	return &corev1.ISCSIVolumeSource{
		TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType,
		ReadOnly: s.ReadOnly,
		Portals:  s.Portals, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth,
		InitiatorName: s.InitiatorName,
	}
}

// fc resolves a disk on a Fibre Channel network.
func (r *resolver) fc(name string, src *corev1.FCVolumeSource) (state.VolumeWant, error) {
	w, err := r.staged(kind.FC, name, src, src.ReadOnly)
	switch {
	case len(src.TargetWWNs) > 0 && src.Lun != nil:
		w.Spec.AttachName = r.attachName(kind.FC, fmt.Sprintf("%v:%d", src.TargetWWNs, *src.Lun))
	case len(src.WWIDs) > 0:
		w.Spec.AttachName = r.attachName(kind.FC, fmt.Sprint(src.WWIDs))
	}
	return w, err
}

// attachName returns the name that Kubernetes' attach-detach controller gives a disk
// (the plugin's name, then GetVolumeName of the in-tree plugin), or "" if no cluster
// attaches volumes. The controller makes no VolumeAttachment for such a disk; it lists
// the disk in volumesAttached of the Node that may use it.
func (r *resolver) attachName(kind state.DriverName, disk string) string {
	if !r.config.ClusterAttach {
		return ""
	}
	return string(kind) + "/" + disk
}
