package plan

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Change is a fact that the kernel shows to differ from its record.
type Change struct {
	// Pod is the pod whose mount changed; "" for the stage.
	Pod  state.PodUID
	Path string
	// Why says what is wrong, for people.
	Why string
}

// Adopt corrects v by what the kernel shows, when the daemon starts or the mount
// table changes. A fact that was present and has vanished becomes entering, so that
// the call is repeated if the volume is wanted and undone if it is not. No fact
// becomes absent here.
//
// seen holds what the kernel shows at the record's paths. A path that is missing
// from it could not be examined, and its fact is kept. After a reboot (sameBoot is
// false) no recorded mount exists, whatever seen says.
func Adopt(v state.Volume, sameBoot bool, seen map[string]state.Seen) (state.Volume, []Change) {
	var changes []Change
	lost := func(pod state.PodUID, path string, was state.Seen) bool {
		why := "the node was rebooted"
		if sameBoot {
			now, ok := seen[path]
			if !ok {
				return false
			}
			if why = differs(was, now); why == "" {
				return false
			}
		}
		changes = append(changes, Change{Pod: pod, Path: path, Why: why})
		return true
	}
	if v.Stage.Phase == state.Present && lost("", v.Spec.StagePath, v.Staged) {
		v.Stage = state.Fact{Phase: state.Entering}
	}
	for _, pod := range byUID(v.Mounts) {
		if m := v.Mounts[pod]; m.Phase == state.Present && lost(pod, m.Target, m.Seen) {
			m.Fact = state.Fact{Phase: state.Entering}
			v.Mounts = withMount(v.Mounts, pod, m)
		}
		switch m := v.Mounts[pod]; {
		case !sameBoot:
			m.Seen = state.Seen{} // no container that used it survived the reboot
			v.Mounts = withMount(v.Mounts, pod, m)
			if m.Phase == state.Entering {
				v.Former = withFormer(v, pod, m.Target)
			}
		case m.Phase == state.Entering && !seenMade(v, m.Seen) && seenMade(v, seen[m.Target]):
			m.Seen = seen[m.Target] // made but not journaled: the pod may already use it
			v.Mounts = withMount(v.Mounts, pod, m)
		}
	}
	return v, changes
}

// differs says how now differs from was; "" if it does not.
func differs(was, now state.Seen) string {
	switch {
	case was.Mounted && !now.Mounted:
		return "it is no longer mounted"
	case was.Exists && !now.Exists:
		return "it no longer exists"
	case was.Mounted && was.Dev != 0 && now.Dev != 0 && was.Dev != now.Dev && !covered(was, now):
		return "another device is mounted there"
	default:
		return ""
	}
}

// covered reports whether something was mounted over the volume's mount. The pod's
// mount is still there below it, so no call is made: the driver would look at the
// covering mount, and hang if that one hangs.
func covered(was, now state.Seen) bool { return was.Layers > 0 && now.Layers > was.Layers }

// Drift says, by path, how v's mounts differ from how they were made, if no call
// would repair that. The texts are for people.
func Drift(v state.Volume, seen map[string]state.Seen) map[string]string {
	var found map[string]string
	compare := func(path string, was state.Seen) {
		now, ok := seen[path]
		if why := drifted(was, now); ok && why != "" {
			if found == nil {
				found = map[string]string{}
			}
			found[path] = why
		}
	}
	if v.Stage.Phase == state.Present {
		compare(v.Spec.StagePath, v.Staged)
	}
	for _, m := range v.Mounts {
		if m.Phase == state.Present {
			compare(m.Target, m.Seen)
		}
	}
	return found
}

func drifted(was, now state.Seen) string {
	switch {
	case !was.Mounted || !now.Mounted:
		return ""
	case covered(was, now):
		return "something else is mounted over it: unmount that by hand"
	case !was.ReadOnly && now.ReadOnly:
		return Fault{}.String()
	default:
		return ""
	}
}

// Fault says why a file system that was mounted writable rejects writes: it was shut
// down after an error, or it became read-only after one. The zero value is a file
// system that became read-only for an unknown reason.
type Fault struct{ ShutDown, AfterError bool }

// String describes the fault to people and says what to do.
func (f Fault) String() string {
	what := "it has become read-only"
	switch {
	case f.ShutDown:
		what = "its file system was shut down after an error"
	case f.AfterError:
		what = "its file system has become read-only after an error"
	}
	return what + ": the kernel log may say why; once that is repaired, restart its pods"
}

// PodFacts is what is known of a pod that has a volume, or may have it, and does not want it.
type PodFacts struct {
	// Listed: some source lists the pod.
	Listed bool
	// Stopped: that source says that the pod's containers have ended for good.
	Stopped bool
	// Unresolved says which volume of the pod could not be resolved and why, if that
	// may be this volume; "" otherwise.
	Unresolved string
	// Living is the container runtime's reason why containers of the pod may still
	// run; "" if none does, or if no runtime is asked.
	Living string
}

// Keep is the one function that decides whether it is proven that a pod no longer uses
// a volume (rule 5). It returns "" if so, else the reason why the volume is kept.
//
// A pod that no source lists is gone: by removing it, the source's owner states that
// its containers have ended. For a listed pod the source must say that they have; that
// the pod no longer names the volume is not enough. A volume that could not be looked
// up is kept. If there is a container runtime to ask, it has to agree with the source.
func Keep(p PodFacts) string {
	switch {
	case (!p.Listed || p.Stopped) && p.Living != "":
		return "not unmounted: " + p.Living
	case !p.Listed:
		return ""
	case p.Stopped:
		return ""
	case p.Unresolved != "":
		return "not unmounted: a volume of the pod cannot be resolved: " + p.Unresolved
	default:
		return "not unmounted: the pod is still listed, and its containers may still be running"
	}
}
