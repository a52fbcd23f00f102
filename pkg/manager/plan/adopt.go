package plan

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Change is a fact that turned out not to be what its record says.
type Change struct {
	// Pod is the pod whose mount it is; "" for the stage.
	Pod  state.PodUID
	Path string
	// Why says what is wrong, for people.
	Why string
}

// Adopt returns v as a daemon that just started, or that learnt of a change in
// the mount table, must see it. What was present and is not there any more
// becomes entering, so that the call is made again if the volume is wanted and
// its negation is made if not; nothing ever becomes absent here.
//
// seen holds what the kernel shows at the record's paths; a path that is
// missing in it could not be looked at, and its fact is kept. After a reboot
// (sameBoot false) no mount of the record is there, whatever is seen.
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
			v.Mounts = with(v.Mounts, pod, m)
		}
		switch m := v.Mounts[pod]; {
		case !sameBoot:
			m.Seen = state.Seen{} // and no container that used it runs
			v.Mounts = with(v.Mounts, pod, m)
		case m.Phase == state.Entering && !seenMade(v, m.Seen) && seenMade(v, seen[m.Target]):
			m.Seen = seen[m.Target] // the pod may have been told, and the journal not
			v.Mounts = with(v.Mounts, pod, m)
		}
	}
	return v, changes
}

// differs says how what is seen now is no longer what was there, or "".
func differs(was, now state.Seen) string {
	switch {
	case was.Mounted && !now.Mounted:
		return "it is no longer mounted"
	case was.Exists && !now.Exists:
		return "it is no longer there"
	case was.Mounted && was.Dev != 0 && now.Dev != 0 && was.Dev != now.Dev && !covered(was, now):
		return "another device is mounted there"
	default:
		return ""
	}
}

// covered reports whether something was mounted over what was there.
// What the pod has is below it still, so no call is made for it: the driver
// would look at what covers it, and hang where that does.
func covered(was, now state.Seen) bool { return was.Layers > 0 && now.Layers > was.Layers }

// Drift returns, by path, what is seen of v's mounts that is not as it was when
// they were made and that no call would mend, for people.
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

// Fault is how what was made to be written to takes no more writes: its file system
// was shut down after an error, has become read-only after one, or, the zero value,
// it is read-only and it is not known why.
type Fault struct{ ShutDown, AfterError bool }

// String says so for people, and what to do.
func (f Fault) String() string {
	what := "it has become read-only"
	switch {
	case f.ShutDown:
		what = "its file system was shut down after an error"
	case f.AfterError:
		what = "its file system has become read-only after an error"
	}
	return what + ": the kernel log may say why; its pods have to be started anew once that is mended"
}

// PodFacts is what is known of a pod that has a volume, or may have it, and does not want it.
type PodFacts struct {
	// Listed: some source lists the pod.
	Listed bool
	// Stopped: that source says that its containers have ended for good.
	Stopped bool
	// Unresolved: a volume of the pod could not be resolved, and it may be this one; says which and why.
	Unresolved string
	// Living says why containers of it may live, where a container runtime is
	// asked; "" where none does, or none is.
	Living string
}

// Keep is the one function that decides whether it is proven that nothing of
// the pod uses a volume any more (rule 5). It returns "" if so, else why the
// volume is kept.
//
// A pod that no source lists is gone: the source's owner says by removing
// it that its containers have ended. A pod that is listed needs the source's
// word that they have; not naming the volume any more is not enough. What could
// not be looked up is kept. A container runtime, where there is one to ask, has to
// agree with the source.
func Keep(p PodFacts) string {
	switch {
	case (!p.Listed || p.Stopped) && p.Living != "":
		return "not unmounted: " + p.Living
	case !p.Listed:
		return ""
	case p.Stopped:
		return ""
	case p.Unresolved != "":
		return "not unmounted: what the pod wants cannot be resolved: " + p.Unresolved
	default:
		return "not unmounted: the pod is still listed, and its containers are not known to have ended"
	}
}
