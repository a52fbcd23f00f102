package server

import (
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// adviceAway is the advice while the API server is away.
const adviceAway = "wait until the API server answers; csi-volmgr get problems says why it does not"

// AdviceNoIssuer is the advice on a volume with a token that nothing on this node issues, as the kube-api-access volume
// that a cluster adds to each pod.
const AdviceNoIssuer = "remove the volume and its volumeMounts from the pod, if it calls no API server (a cluster " +
	"adds kube-api-access to each pod); or start the daemon with a cluster (--kubeconfig=FILE) or with a key: " +
	"csi-volmgr run --token-signing-key=FILE"

// adviceOnBuiltin returns the advice on a failure of a built-in kind, which has no
// driver and no log of its own.
func (s step) adviceOnBuiltin() string {
	switch s.retry.Reason {
	case state.NotAllowed:
		return "use a path that the node allows, or allow a directory that this one is in: csi-volmgr run " +
			"--host-path-allow=DIRECTORY, or host-path-allow in its configuration file"
	case state.WrongType:
		return "put at the path what the volume expects, or correct the volume: type of hostPath, volumeMode of a local " +
			"PersistentVolume"
	case state.NotThere:
		return "create what the message names, or correct the path; csi-volmgr creates it only for a hostPath of type " +
			"DirectoryOrCreate or FileOrCreate"
	case state.BadSource:
		return fmt.Sprintf("correct what the message names in volume %s, and apply it again", s.spec.Name)
	case state.NoObject:
		return "apply the object or the key that the message names, or make it optional in the volume: optional: true"
	case state.NoIssuer:
		return AdviceNoIssuer
	case state.NoProgram:
		return adviceProgram
	case state.WrongDisk:
		return "check that the disk that the volume names is connected to this node, and that all its paths lead to " +
			"it: ls -l /dev/disk/by-id"
	case state.DiskInUse:
		return "end the other use of the disk; lsblk and csi-volmgr who DEVICE show it"
	case state.NotBlank:
		return "set fsType to the file system that the disk has, or erase the disk if its data is not needed: " +
			"wipefs --all; csi-volmgr formats no disk that holds data"
	case state.OtherFS:
		return "set fsType to the file system that the disk has; csi-volmgr formats no disk that holds data"
	case state.NoImage:
		return "copy the image to this node: into a layout below --image-layouts, or by the service of " +
			"--image-service-endpoint with a pullPolicy other than Never"
	case state.BadImage:
		return "copy the image to this node again, or use another: its layers cannot be unpacked"
	case state.ServerAway:
		return adviceAway
	case state.NoSpace:
		return "make room on the disk that the message names: df -h, df -i"
	}
	switch {
	case s.removes() && s.target != "":
		return "find who uses it: csi-volmgr who " + s.target
	case s.retry.Refused || s.retry.Final:
		return fmt.Sprintf("correct what the message names in volume %s, and apply it again", s.spec.Name)
	default:
		return "fix what the message names; csi-volmgr serves this kind itself and retries"
	}
}
