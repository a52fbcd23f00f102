package plan

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// labelFor returns the SELinux label to mount the volume with. A file system has one
// label for all its mounts; the kernel rejects a second one (EINVAL, "Same superblock,
// different security settings"). The result is has if a pod asks for that, else the
// label of the first pod by UID. "" counts as a label of its own, since the runtime of
// a pod without a label would relabel the files.
func labelFor(wanted map[state.PodUID]state.WantMount, has string) (label string) {
	for i, pod := range byUID(wanted) {
		if asked := wanted[pod].SELinuxLabel; i == 0 || asked == has {
			label = asked
		}
	}
	return label
}

// Labels returns the label that a volume has or would have, chosen as labelFor does, and
// the pods that ask for another one.
func Labels(wanted map[state.PodUID]string, has string) (label string, others []state.PodUID) {
	pods := byUID(wanted)
	for i, pod := range pods {
		if i == 0 || wanted[pod] == has {
			label = wanted[pod]
		}
	}
	return label, slices.DeleteFunc(pods, func(pod state.PodUID) bool { return wanted[pod] == label })
}
