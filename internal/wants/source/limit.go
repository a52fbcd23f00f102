package source

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recordedVolumes are the names of the volumes that a pod has by the records of an earlier run.
type recordedVolumes struct {
	pod   Key // zero if the records do not name the pod
	names map[string]bool
}

// RecordedVolumes tells which volumes pods have by the records of an earlier run. A limit of volumes per pod that is
// new since then does not take them away. It comes before [Catalog.Recorded].
func (c *Catalog) RecordedVolumes(volumes map[state.VolumeID]state.Volume) {
	if c.config.VolumesPerPod == 0 {
		return
	}
	c.update.Lock()
	defer c.update.Unlock()
	var early []Key // pods of a source that was quicker than the records
	c.mu.Lock()
	for _, v := range volumes {
		for uid, m := range v.Mounts {
			of, again := c.recorded[uid]
			if !again {
				of.names = map[string]bool{}
				early = slices.AppendSeq(early, c.uids[uid].all())
			}
			if m.Pod.Name != "" {
				of.pod = podKey(m.Pod)
			}
			for _, name := range m.Names {
				of.names[name] = true
			}
			c.recorded[uid] = of
		}
	}
	c.mu.Unlock()
	slices.SortFunc(early, Key.Compare)
	c.resolve(slices.Compact(early))
}

// volumesOf returns the names of the volumes that the pod has: those that it wanted last, and those that the records
// say. The caller holds mu.
func (c *Catalog) volumesOf(pod state.Pod) map[string]bool {
	names := map[string]bool{}
	if want, known := c.published[pod.UID]; known && podKey(want.Pod) == podKey(pod) {
		for _, v := range want.Volumes {
			for _, name := range v.Names {
				if !v.Unresolved() {
					names[name] = true
				}
			}
		}
	}
	if of := c.recorded[pod.UID]; of.pod == (Key{}) || of.pod == podKey(pod) {
		for name := range of.names {
			names[name] = true
		}
	}
	return names
}
