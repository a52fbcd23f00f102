package plan

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// labelled returns w with the SELinux label that the volume is mounted with: a
// file system has one for all its mounts, and the kernel refuses a second (EINVAL,
// "Same superblock, different security settings"). It is the one that the volume
// has, if a pod still asks for it, else the first pod's by uid. None is a label
// like any other: such a pod's runtime would relabel what has a label already.
func labelled(w state.Want, v state.Volume) state.Want {
	pods := byUID(w.Pods)
	for i, pod := range pods {
		label := w.Pods[pod].SELinuxLabel
		if i == 0 {
			w.Spec.SELinuxLabel = label
		}
		if label == v.Spec.SELinuxLabel {
			w.Spec.SELinuxLabel = label
			break
		}
	}
	return w
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
