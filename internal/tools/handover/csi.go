package handover

import (
	"fmt"
	"path"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const csiKind = state.DriverName("kubernetes.io/csi")

// adoptVolume takes over a pod's volume that is a directory.
func (a *adoption) adoptVolume(v Volume) {
	kind := kindOf(v.Plugin)
	if kind != csiKind {
		a.adoptBuiltin(kind, v)
		return
	}
	target := a.Layout.Target(state.Filesystem, v.Pod, v.Name)
	if a.claimed[target] {
		return
	}
	want := a.at[target]
	spec, problem := identify(v.Name, v.Notes, want.Spec)
	if problem != "" && !v.Seen.Mounted && !v.Notes.Found {
		a.addItem(Item{Path: v.Path, Pod: v.Pod, What: leftNothing})
		return
	}
	if problem != "" {
		a.refuse(v.Path, "%s", problem)
		return
	}
	id := state.SharedID(spec.Driver, spec.Handle)
	if spec.Ephemeral {
		id = state.PodVolumeID(spec.Driver, v.Pod, spec.Name)
	}
	spec = a.wantedSpec(id, spec)
	spec.Mode = state.Filesystem
	m := a.mountOf(v.Pod, v.Name, target, want)
	setPhase(v.Seen.Mounted, &m, v.Seen)
	spec.MountGroup = groupOf(m, a.Drivers[spec.Driver])
	spec.SELinuxLabel = v.Notes.Values[keyLabel]
	a.add(found{id: id, spec: spec, mount: m, want: want, path: v.Path}, func(r *state.Volume) bool {
		return a.completeStage(r, v.Path)
	})
}

// wantedSpec returns the spec from a listed pod, which contains more than the notes, or spec if no
// listed pod wants the volume.
func (a *adoption) wantedSpec(id state.VolumeID, spec state.Spec) state.Spec {
	if want, ok := a.by[id]; ok {
		return want.Spec
	}
	return spec
}

// identify returns the spec of a volume: the pod's if the kubelet's notes agree with it, and the
// notes' if no pod wants the volume. If the notes are unreadable, as after a kubelet that crashed
// while writing them, the pod's spec replaces them, because it names the same PersistentVolume.
func identify(name string, n Notes, want state.Spec) (s state.Spec, problem string) {
	wanted := want.Driver != ""
	if n.Values == nil {
		switch {
		case wanted:
			return want, ""
		case n.Found:
			return s, fmt.Sprintf("%s cannot be read (%s), and no listed pod wants the volume: unmount it under the "+
				"kubelet, or list the pod", NotesName, n.Problem)
		default:
			return s, NotesName + " is missing, and no listed pod wants the volume: unmount it under the kubelet, or " +
				"list the pod"
		}
	}
	s = state.Spec{
		Driver: state.DriverName(n.Values[keyDriver]), Handle: n.Values[keyHandle], Name: name,
		Ephemeral: n.Values[keyLifecycle] == ephemeral,
	}
	switch mode := n.Values[keyLifecycle]; {
	case s.Driver == "" || s.Handle == "":
		return s, fmt.Sprintf("%s: %s and %s: found %q and %q, want both", NotesName, keyDriver, keyHandle, s.Driver,
			s.Handle)
	case len(s.Handle) > state.MaxHandle:
		return s, fmt.Sprintf("%s: %s: has %d bytes, want at most %d", NotesName, keyHandle, len(s.Handle), state.MaxHandle)
	case n.Values[keyName] != "" && n.Values[keyName] != name:
		return s, fmt.Sprintf("%s: %s: found %q, want %q, the name of the directory", NotesName, keyName, n.Values[keyName],
			name)
	case mode != "" && mode != persistent && mode != ephemeral:
		return s, fmt.Sprintf("%s: %s: found %q, want %s or %s", NotesName, keyLifecycle, mode, persistent, ephemeral)
	case !wanted:
		return s, ""
	case want.Driver != s.Driver || want.Handle != s.Handle || want.Ephemeral != s.Ephemeral:
		return s, fmt.Sprintf("found volume %s of driver %s, but the listed pod wants %s of %s under this name: "+
			"end the pod under the kubelet first", s.Handle, s.Driver, want.Handle, want.Driver)
	}
	return want, ""
}

// completeStage finds where a CSI volume with a file system is staged and completes its record. It returns
// false after a refusal. where is for people.
func (a *adoption) completeStage(v *state.Volume, where string) bool {
	if v.Spec.Ephemeral {
		v.Spec.StagePath = ""
		return true
	}
	s, ok := a.findStaged(*v.Spec)
	can, answers := a.Drivers[v.Spec.Driver]
	if v.Spec.StagePath = s.Path; !ok {
		v.Spec.StagePath = a.Layout.StagePath(state.Filesystem, v.Spec.Driver, v.Spec.Handle, v.Spec.Name)
	}
	switch {
	case ok && s.Notes.Values != nil && (s.Notes.Values[keyDriver] != string(v.Spec.Driver) ||
		s.Notes.Values[keyHandle] != v.Spec.Handle):
		a.refuse(s.Path, "its %s says that it is volume %s of driver %s, but its path says %s", NotesName,
			s.Notes.Values[keyHandle], s.Notes.Values[keyDriver], v.Spec.Handle)
	case s.Seen.Mounted:
		a.setStage(v, s)
		return true
	case !answers:
		a.refuse(where, "driver %s does not answer, so it is unknown whether the volume is staged, though nothing "+
			"is mounted at %s: start the driver first", v.Spec.Driver, v.Spec.StagePath)
	case !can.Stage:
		if ok {
			a.markEmpty(s)
		}
		return true
	case !ok:
		a.refuse(where, "there is no staging directory %s, and driver %s stages its volumes: end the pod under the kubelet "+
			"first", v.Spec.StagePath, v.Spec.Driver)
	default:
		a.setStage(v, s)
		return true
	}
	return false
}

func (a *adoption) setStage(v *state.Volume, s Staged) {
	v.Needs.Stage = true
	v.Stage.Phase = state.Entering
	if s.Seen.Mounted {
		v.Stage.Phase, v.Staged = state.Present, s.Seen
	}
	a.claimed[s.Path] = true
	a.addItem(Item{Path: s.Path, Volume: v.ID, What: takenStage(s.Seen)})
}

func takenStage(s state.Seen) string {
	if s.Mounted {
		return takenMounted
	}
	return takenDir + ": drivers may stage without a mount; the daemon stages it again if it is wanted"
}

func (a *adoption) markEmpty(s Staged) {
	a.claimed[s.Path] = true
	a.out.Empty = append(a.out.Empty, s.Path)
	a.addItem(Item{Path: s.Path, What: leftNoStage})
}

// findStaged finds the staging directory of a volume: kubelets since 1.24 name it by the hash of the
// handle, and older ones by the PersistentVolume. If there are both, it returns the mounted one.
func (a *adoption) findStaged(s state.Spec) (found Staged, ok bool) {
	now := a.Layout.StagePath(state.Filesystem, s.Driver, s.Handle, s.Name)
	before := path.Join(a.Layout.Plugins(), "kubernetes.io/csi/pv", s.Name, "globalmount")
	for _, at := range []string{now, before} {
		for _, one := range a.Disk.Staged {
			if one.Path == at && (!ok || one.Seen.Mounted && !found.Seen.Mounted) {
				found, ok = one, true
			}
		}
	}
	return found, ok
}

// adoptStage takes over a staged volume that no pod has.
func (a *adoption) adoptStage(s Staged) {
	if a.claimed[s.Path] {
		return
	}
	if !s.Seen.Mounted && s.Notes.Values == nil {
		a.addItem(Item{Path: s.Path, What: leftNothing})
		return
	}
	name := path.Base(path.Dir(s.Path))
	spec, problem := identify(name, s.Notes, state.Spec{})
	if problem != "" {
		a.refuse(s.Path, "%s", problem)
		return
	}
	id := state.SharedID(spec.Driver, spec.Handle)
	want := a.by[id]
	spec = a.wantedSpec(id, spec)
	if at, ok := a.findStaged(spec); !ok || at.Path != s.Path {
		a.refuse(s.Path, "its %s says that it is volume %s of driver %s, whose staging path is another", NotesName,
			spec.Handle, spec.Driver)
		return
	}
	v, fresh := a.record(id)
	can, answers := a.Drivers[spec.Driver]
	switch {
	// An earlier run may have died before removing it.
	case !s.Seen.Mounted && (answers && !can.Stage || !fresh && !v.Needs.Stage):
		a.markEmpty(s)
		return
	case !fresh:
		a.refuse(s.Path, "the volume's record says that it is not staged there: unmount it first")
		return
	case !s.Seen.Mounted && !answers && want.ID != "":
		a.refuse(s.Path, "driver %s does not answer, so it is unknown whether it has staged the volume: start the driver "+
			"first", spec.Driver)
		return
	}
	spec.Mode, spec.StagePath, spec.SELinuxLabel = state.Filesystem, s.Path, s.Notes.Values[keyLabel]
	v.Spec = &spec
	a.setStage(&v, s)
	a.out.Records[id] = v
}
