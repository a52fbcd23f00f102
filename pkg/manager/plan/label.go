package plan

import (
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// labelled returns w with the SELinux label that the volume is mounted with: a
// file system has one for all its mounts, and the kernel refuses a second (EINVAL,
// "Same superblock, different security settings"). It is the one that the volume
// has, if a pod still asks for it, else the first pod's by uid. None is a label
// like any other: such a pod's runtime would relabel what has a label already.
func labelled(w state.Want, v state.Volume) state.Want {
	pods := slices.Sorted(maps.Keys(w.Pods))
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
