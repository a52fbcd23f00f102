package plan

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// placeTaken says why fact, pod's mount or, without a pod, the stage, is not begun: another volume
// is or may be at its path. The driver would answer OK to the mount that it finds there, and that
// volume's removal would later unmount this one.
func (c *chooser) placeTaken(pod state.PodUID, fact state.Fact) reason {
	other, taken := c.Taken[pod]
	if !taken || fact.Phase != state.Absent { // a call that has begun is repeated, or undone
		return reason{}
	}
	return reason{
		PathTaken,
		"the pod's volume has another handle now, as after its PersistentVolume was replaced: volume " + string(other) +
			" is mounted at this one's path and has to be unmounted first, which the pod's end does",
	}
}
