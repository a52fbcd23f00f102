package plan

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// labelFor returns the SELinux label that the volume is mounted with: a file system
// has one for all its mounts, and the kernel refuses a second (EINVAL, "Same
// superblock, different security settings"). It is has, if a pod asks for it, else
// the first pod's by uid. None is a label like any other: such a pod's runtime would
// relabel what has a label already.
func labelFor(wanted map[state.PodUID]state.WantMount, has string) (label string) {
	for i, pod := range byUID(wanted) {
		if asked := wanted[pod].SELinuxLabel; i == 0 || asked == has {
			label = asked
		}
	}
	return label
}

// Labels returns which of the pods' labels a volume has, or would have: has, if a
// pod asks for it, else that of the first by uid; and the pods that ask for another.
func Labels(wanted map[state.PodUID]string, has string) (label string, others []state.PodUID) {
	pods := byUID(wanted)
	for i, pod := range pods {
		if i == 0 || wanted[pod] == has {
			label = wanted[pod]
		}
	}
	return label, slices.DeleteFunc(pods, func(pod state.PodUID) bool { return wanted[pod] == label })
}
