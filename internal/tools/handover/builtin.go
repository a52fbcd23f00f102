package handover

import (
	"encoding/json"
	"path"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// adoptBuiltin takes over a volume of a built-in kind.
func (a *adoption) adoptBuiltin(name state.DriverName, v Volume) {
	k, _ := kind.Of(name)
	target := a.Layout.BuiltinTarget(name, v.Pod, v.Name)
	switch {
	case a.claimed[target]:
		return
	case !k.Kept:
		a.refuse(v.Path, "csi-volmgr does not know kind %s, or keeps its volumes in another form: "+
			"end the pod under the kubelet first", name)
		return
	case name == kind.Local && slices.Contains(a.Disk.Mounts, localDevice(a.Layout, v.Name)):
		a.refuse(v.Path, "a local volume on a device, which a kubelet mounts a second time at %s and csi-volmgr does not: "+
			"end the pod under the kubelet first", localDevice(a.Layout, v.Name))
		return
	}
	want := a.at[target]
	f := found{id: want.ID, spec: want.Spec, mount: a.mountOf(v.Pod, v.Name, target, want), want: want, path: v.Path}
	if want.ID == "" {
		f.id = state.PodVolumeID(name, v.Pod, v.Name)
		if name == kind.Local {
			f.id = state.SharedID(name, v.Name)
		}
		f.spec = state.Spec{Driver: name, Builtin: true, Name: v.Name, Mode: state.Filesystem, Config: json.RawMessage("{}")}
		f.spec = a.wantedSpec(f.id, f.spec)
	}
	mounts := k.Mounts || name == kind.EmptyDir && inMemory(f.spec)
	setPhase(v.Seen.Exists && (v.Seen.Mounted || !mounts), &f.mount, v.Seen)
	a.add(f, func(*state.Volume) bool { return true })
	if name == kind.EmptyDir && v.Files {
		a.fresh[v.Pod] = append(a.fresh[v.Pod], v.Name)
	}
}

// localDevice is where a kubelet mounts the device of a local volume for all pods.
func localDevice(l state.Layout, name string) string {
	return path.Join(l.Plugins(), string(kind.Local), "mounts", name)
}

// inMemory reports whether an emptyDir needs a mount because it is in memory or huge pages.
func inMemory(s state.Spec) bool {
	var source struct {
		Medium string `json:"medium"`
	}
	return json.Unmarshal(s.Config, &source) == nil && source.Medium != ""
}
