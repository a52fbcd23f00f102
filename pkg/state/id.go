package state

import (
	"crypto/sha256"
	"encoding/hex"
)

// DriverName names the maker of a volume: a CSI driver ("local.csi-volmgr.dev")
// or a built-in kind by its plugin name ("kubernetes.io/empty-dir").
type DriverName string

// PodUID identifies one pod for ever; a pod of the same name made later has another.
type PodUID string

// VolumeID identifies a volume on this node. It is the key under which calls
// are serialised (CSI 1.13, "at most one call in flight per volume").
type VolumeID string

// MaxHandle is the greatest length of a volume handle in bytes. CSI 1.13 ("Size
// Limits") allows 128, but the handle is the driver's own word, drivers in wide
// use make longer ones (Azure Disk: about 150), and the kubelet passes them on.
const MaxHandle = 1024

// SharedID is the id of a volume that several pods may use: a persistent one.
func SharedID(driver DriverName, handle string) VolumeID {
	return VolumeID(string(driver) + "^" + handle)
}

// PodVolumeID is the id of a volume that lives and dies with one pod: a
// built-in kind, or an inline CSI volume. name is the name in the pod's spec.
func PodVolumeID(driver DriverName, pod PodUID, name string) VolumeID {
	return VolumeID(string(driver) + "^" + string(pod) + "/" + name)
}

// EphemeralHandle is the CSI volume id of an inline volume, as every driver
// knows it from the kubelet: "csi-" and the hex SHA-256 of pod UID and volume name.
func EphemeralHandle(pod PodUID, name string) string {
	return "csi-" + hashHex(string(pod)+name)
}

func hashHex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
