package state

import (
	"crypto/sha256"
	"encoding/hex"
)

// DriverName is the name of a CSI driver ("local.csi-volmgr.dev") or the plugin name of a
// built-in kind ("kubernetes.io/empty-dir").
type DriverName string

// PodUID identifies one pod for ever; a later pod of the same name has another UID.
type PodUID string

// VolumeID identifies a volume on this node. Calls are serialized by it (CSI 1.13, "at
// most one call in flight per volume").
type VolumeID string

// MaxHandle is the maximum length of a volume handle in bytes. CSI 1.13 ("Size Limits")
// allows 128, but drivers in wide use choose longer handles (Azure Disk: about 150), and
// the kubelet passes them on.
const MaxHandle = 1024

// SharedID returns the id of a volume that several pods may use: a persistent one.
func SharedID(driver DriverName, handle string) VolumeID {
	return VolumeID(string(driver) + "^" + handle)
}

// PodVolumeID returns the id of a volume that exists for one pod only: one of a built-in
// kind, or an inline CSI volume. name is the volume's name in the pod's spec.
func PodVolumeID(driver DriverName, pod PodUID, name string) VolumeID {
	return VolumeID(string(driver) + "^" + string(pod) + "/" + name)
}

// EphemeralHandle returns the CSI volume id of an inline volume, the same as the
// kubelet's: "csi-" and the hex SHA-256 of pod UID and volume name.
func EphemeralHandle(pod PodUID, name string) string {
	return "csi-" + hashHex(string(pod)+name)
}

func hashHex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
