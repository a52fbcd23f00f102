package faults

import (
	"os"
	"path/filepath"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// The server of a driver's FUSE file system dies. explain says so for the pods that have
// the volume, and they can be deleted. A new pod does not get the dead file system. Once
// the driver serves the volume again and the old pods are gone, the new pod gets it, staged
// anew.
//
// Faults: A076.
func TestDeadFileSystemOfADriver(t *testing.T) {
	t.Parallel()
	n := newNode(t, csistrict.Script{})
	n.Apply(want{name: "data"}.String(), harness.Pod("first", fromClaim("data")))
	n.Mounted("first")
	n.DeletePods("first")
	// From here on, the driver serves this volume's data from a FUSE file system.
	data, err := filepath.Glob(filepath.Join(n.state(), "volumes", "*", "data"))
	if err != nil || len(data) != 1 {
		t.Fatalf("%q, %v", data, err)
	}
	die := harness.EmptyFUSE(n.T, data[0])
	n.Apply(harness.Pod("stays", fromClaim("data")), harness.Pod("goes", fromClaim("data")))
	n.Mounted("stays", "goes")
	target := n.HostPath("stays", "data")
	stages := n.begun("NodeStageVolume")
	die()
	if _, err := os.ReadDir(target); err == nil {
		t.Fatal("the file system is alive")
	}
	n.refused("stays", "transport endpoint is not connected")
	n.explained("pod", "stays", "transport endpoint is not connected")
	n.DeletePods("goes")

	n.unmount(data[0])
	// The stage is from the dead file system: a new pod waits until it can be staged anew.
	n.Apply(harness.Pod("early", fromClaim("data")))
	n.explained("pod", "early", "the server of the mounted file system has ended")
	n.DeletePods("stays")
	n.verified("early")
	n.DeletePods("early")
	n.NoVolumes()
	n.Apply(harness.Pod("new", fromClaim("data")))
	n.verified("new")
	n.write(filepath.Join(n.HostPath("new", "data"), "f"), "alive")
	if got := n.begun("NodeStageVolume"); got != stages+2 {
		t.Errorf("stage calls: got %d, want two more than %d", got, stages)
	}
	n.DeletePods("new")
	n.DeleteClaims("data")
	n.verdict()
}
