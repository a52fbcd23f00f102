package handover

import (
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// NotesName is the file in which a kubelet keeps what it knows of a CSI volume.
const NotesName = "vol_data.json"

// The keys of that file.
const (
	keyName       = "specVolID"
	keyHandle     = "volumeHandle"
	keyDriver     = "driverName"
	keyNode       = "nodeName"
	keyAttachment = "attachmentID"
	keyLifecycle  = "volumeLifecycleMode"
	keyLabel      = "seLinuxMountContext"
)

// The values of volumeLifecycleMode; a kubelet before 1.16 wrote none.
const (
	persistent = "Persistent"
	ephemeral  = "Ephemeral"
)

// Notes is a vol_data.json as it was found.
type Notes struct {
	// Found: there is such a file.
	Found bool
	// Values are what it holds; nil where Problem says why it cannot be read.
	Values  map[string]string
	Problem string
}

// Disk is what lies below a node's root directory, in the kubelet's layout.
// Each list is sorted by path.
type Disk struct {
	Volumes []Volume
	Devices []Device
	Staged  []Staged
	Blocks  []Block
	// Mounts are all mounts below the root directory, by path.
	Mounts []string
}

// Volume is a directory pods/UID/volumes/PLUGIN/NAME.
type Volume struct {
	Pod state.PodUID
	// Plugin and Name are as the directories are called ("kubernetes.io~csi").
	Plugin, Name string
	Path         string
	// Notes is read for CSI volumes alone.
	Notes Notes
	// Seen is the volume itself: for CSI the directory "mount" in it.
	Seen state.Seen
	// Files: something is in it. It is told of an emptyDir alone.
	Files bool
}

// Device is a link pods/UID/volumeDevices/PLUGIN/NAME to a pod's block device.
type Device struct {
	Pod          state.PodUID
	Plugin, Name string
	Path         string
}

// Staged is a directory globalmount, below plugins/kubernetes.io/csi, in which a
// CSI volume is staged or may be.
type Staged struct {
	// Path is that of globalmount; Notes lies beside it.
	Path  string
	Notes Notes
	Seen  state.Seen
}

// Block is what there is of a raw block volume below
// plugins/kubernetes.io/csi/volumeDevices, by the name of its PersistentVolume.
type Block struct {
	Name  string
	Notes Notes
	// Stage is its staging directory.
	Stage state.Seen
	// Published is what is at the target of each pod.
	Published map[state.PodUID]state.Seen
}

// kindOf is the plugin's name ("kubernetes.io/csi") of a directory's.
func kindOf(dir string) state.DriverName {
	return state.DriverName(strings.ReplaceAll(dir, "~", "/"))
}
