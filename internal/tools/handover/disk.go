package handover

import (
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// NotesName is the file in which a kubelet describes a CSI volume.
const NotesName = "vol_data.json"

// The keys in that file.
const (
	keyName       = "specVolID"
	keyHandle     = "volumeHandle"
	keyDriver     = "driverName"
	keyNode       = "nodeName"
	keyAttachment = "attachmentID"
	keyLifecycle  = "volumeLifecycleMode"
	keyLabel      = "seLinuxMountContext"
)

// Values of volumeLifecycleMode. A kubelet before 1.16 wrote none.
const (
	persistent = "Persistent"
	ephemeral  = "Ephemeral"
)

// Notes is the content of a vol_data.json.
type Notes struct {
	// Found means that the file exists.
	Found bool
	// Values is the content; nil if it cannot be read, for the reason in Problem.
	Values  map[string]string
	Problem string
}

// Disk is what is below a node's root directory, in the kubelet's layout. Each list is sorted by
// path.
type Disk struct {
	Volumes []Volume
	Devices []Device
	Staged  []Staged
	Blocks  []Block
	// Mounts lists the paths of all mounts below the root directory.
	Mounts []string
}

// Volume is a directory pods/UID/volumes/PLUGIN/NAME.
type Volume struct {
	Pod state.PodUID
	// Plugin and Name are the names of the directories ("kubernetes.io~csi").
	Plugin, Name string
	Path         string
	// Notes is only read for CSI volumes.
	Notes Notes
	// Seen is the state of the volume itself; for CSI, of the directory "mount" in it.
	Seen state.Seen
	// Files means that the volume contains something. It is only set for emptyDirs.
	Files bool
}

// Device is a link pods/UID/volumeDevices/PLUGIN/NAME to a pod's block device.
type Device struct {
	Pod          state.PodUID
	Plugin, Name string
	Path         string
}

// Staged is a directory globalmount below plugins/kubernetes.io/csi in which a CSI volume is or may
// be staged.
type Staged struct {
	// Path is the path of globalmount; the notes are beside it.
	Path  string
	Notes Notes
	Seen  state.Seen
}

// Block is what exists of a raw block volume below plugins/kubernetes.io/csi/volumeDevices, under
// the name of its PersistentVolume.
type Block struct {
	Name  string
	Notes Notes
	// Stage is the state of its staging directory.
	Stage state.Seen
	// Published is the state of each pod's target.
	Published map[state.PodUID]state.Seen
}

// kindOf converts the name of a plugin's directory to the plugin's name ("kubernetes.io/csi").
func kindOf(dir string) state.DriverName {
	return state.DriverName(strings.ReplaceAll(dir, "~", "/"))
}
