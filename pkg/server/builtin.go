package server

import (
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// adviceAway is the advice while the API server is away.
const adviceAway = "wait until the API server answers; csi-volmgr get problems says why it does not"

// adviceOnBuiltin returns the advice on a failure of a built-in kind, which has no
// driver and no log of its own.
func (s step) adviceOnBuiltin() string {
	switch s.retry.Reason {
	case state.NotAllowed:
		return "use a path that the node allows, or allow a directory that this one is in: csi-volmgr run " +
			"--host-path-allow=DIRECTORY, or host-path-allow in its configuration file"
	case state.WrongType:
		return "have at the path what the volume wants, or correct the volume: type of hostPath, volumeMode of a local " +
			"PersistentVolume"
	case state.NotThere:
		return "make what the message names, or correct the path; a hostPath of type DirectoryOrCreate or FileOrCreate is " +
			"made"
	case state.BadSource:
		return fmt.Sprintf("correct what the message names in volume %s, and apply it anew", s.spec.Name)
	case state.NoObject:
		return "apply the object or the key that the message names, or let the volume do without it: optional: true"
	case state.NoIssuer:
		return "give the node a key (csi-volmgr run --token-signing-key=FILE) or a cluster (--kubeconfig=FILE), or take " +
			"this source out of the volume"
	case state.NoProgram:
		return "install the program; csi-volmgr doctor says what has it"
	case state.WrongDisk:
		return "see whether the disk that the volume names is connected to this node, and whether all its paths lead to " +
			"it: ls -l /dev/disk/by-id"
	case state.DiskInUse:
		return "end the other use of the disk: lsblk and csi-volmgr who DEVICE say what has it"
	case state.NotBlank:
		return "give the volume the file system that the disk has (fsType), or remove what is on it if it is not needed: " +
			"wipefs --all; no disk with data is formatted here"
	case state.OtherFS:
		return "set fsType to the file system that the disk has; what is on a disk is never formatted"
	case state.NoImage:
		return "bring the image to this node: into a layout below --image-layouts, or by the service of " +
			"--image-service-endpoint with a pullPolicy other than Never"
	case state.BadImage:
		return "bring the image to this node anew, or use another: its layers cannot be unpacked"
	case state.ServerAway:
		return adviceAway
	case state.NoSpace:
		return "make room on the disk that the message names: df -h, df -i"
	}
	switch {
	case s.removes() && s.target != "":
		return "find who uses it: csi-volmgr who " + s.target
	case s.retry.Refused || s.retry.Final:
		return fmt.Sprintf("correct what the message names in volume %s, and apply it anew", s.spec.Name)
	default:
		return "mend what the message names; csi-volmgr serves this kind itself, and tries again"
	}
}
