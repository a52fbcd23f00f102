package handover

import (
	"maps"
	"path"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// adoptBlock takes over a raw block volume for each pod that it was published to, or, if there is none,
// what is staged.
func (a *adoption) adoptBlock(b Block) {
	where := path.Join(blockDir(a.Layout), b.Name)
	staging := a.Layout.StagePath(state.Block, "", "", b.Name)
	pods := a.podsOf(b)
	if len(pods) == 0 && (!b.Stage.Exists || a.claimed[staging]) {
		if !a.claimed[staging] {
			a.addItem(Item{Path: where, What: leftNothing})
		}
		return
	}
	for _, pod := range pods {
		a.adoptPublished(b, pod, where)
	}
	if len(pods) > 0 {
		return
	}
	spec, problem := identify(b.Name, b.Notes, state.Spec{})
	if problem != "" {
		a.refuse(where, "%s", problem)
		return
	}
	id := state.SharedID(spec.Driver, spec.Handle)
	spec = a.wantedSpec(id, spec)
	v, fresh := a.record(id)
	if !fresh {
		a.refuse(staging, "the volume's record says that it is not staged there: unmount it first")
		return
	}
	spec.Mode, spec.StagePath = state.Block, staging
	v.Spec = &spec
	a.setStage(&v, Staged{Path: staging, Seen: b.Stage})
	a.out.Records[id] = v
}

// podsOf returns the pods that have the volume or may have it.
func (a *adoption) podsOf(b Block) []state.PodUID {
	pods := slices.Collect(maps.Keys(b.Published))
	for _, d := range a.Disk.Devices {
		if kindOf(d.Plugin) == csiKind && d.Name == b.Name {
			pods = append(pods, d.Pod)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// adoptPublished takes over one pod's use of the volume.
func (a *adoption) adoptPublished(b Block, pod state.PodUID, where string) {
	target := a.Layout.Target(state.Block, pod, b.Name)
	if a.claimed[target] {
		return
	}
	want := a.at[target]
	spec, problem := identify(b.Name, b.Notes, want.Spec)
	if problem != "" {
		a.refuse(where, "%s", problem)
		return
	}
	id := state.SharedID(spec.Driver, spec.Handle)
	spec = a.wantedSpec(id, spec)
	spec.Mode = state.Block
	m := a.mountOf(pod, b.Name, target, want)
	m.DevicePath = a.Layout.DevicePath(pod, b.Name)
	setPhase(b.Published[pod].BlockDevice, &m, b.Published[pod])
	f := found{id: id, spec: spec, mount: m, want: want, path: target}
	a.add(f, func(v *state.Volume) bool {
		v.Spec.StagePath = a.Layout.StagePath(state.Block, spec.Driver, spec.Handle, b.Name)
		// A kubelet creates the directory if the driver stages, and unstages if the directory
		// exists.
		if b.Stage.Exists {
			a.setStage(v, Staged{Path: v.Spec.StagePath, Seen: b.Stage})
		}
		return true
	})
}

// checkDevice refuses links to devices that nothing else describes.
func (a *adoption) checkDevice(d Device) {
	if kindOf(d.Plugin) != csiKind {
		a.refuse(d.Path, "csi-volmgr keeps raw block volumes of kind %s in another form: end the pod under the kubelet first",
			kindOf(d.Plugin))
		return
	}
	if !slices.ContainsFunc(a.Disk.Blocks, func(b Block) bool {
		return b.Name == d.Name
	}) && !a.claimed[a.Layout.Target(state.Block, d.Pod, d.Name)] {
		a.refuse(d.Path, "nothing below %s says which volume the device belongs to: end the pod under the kubelet first",
			path.Join(blockDir(a.Layout), d.Name))
	}
}
