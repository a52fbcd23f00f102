package handover

import (
	"encoding/json"
	"path"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kinds of volumes by the names of the kubelet's plugins, which csi-volmgr keeps
// as a kubelet does, at the same paths.
const (
	emptyDir = state.DriverName("kubernetes.io/empty-dir")
	local    = state.DriverName("kubernetes.io/local-volume")
)

// keeps says of such a kind whether its volumes are mounts; ok is false for others.
func keeps(kind state.DriverName) (mounts, ok bool) {
	switch kind {
	case emptyDir, hostPath, "kubernetes.io/configmap":
		return false, true
	case local, "kubernetes.io/nfs", "kubernetes.io/secret", "kubernetes.io/projected", "kubernetes.io/downward-api":
		return true, true
	}
	return false, false
}

// builtin takes over a volume of a kind that is served in this process.
func (a *adoption) builtin(kind state.DriverName, v Volume) {
	mounts, ok := keeps(kind)
	target := a.Layout.BuiltinTarget(kind, v.Pod, v.Name)
	switch {
	case a.claimed[target]:
		return
	case !ok:
		a.refuse(v.Path, "a volume of kind %s, which is kept otherwise here or not known: end the pod under the kubelet first", kind)
		return
	case kind == local && slices.Contains(a.Disk.Mounts, localDevice(a.Layout, v.Name)):
		a.refuse(v.Path, "a local volume on a device, which a kubelet mounts a second time at %s and csi-volmgr does not: end the pod under the kubelet first", localDevice(a.Layout, v.Name))
		return
	}
	want := a.at[target]
	f := found{id: want.ID, spec: want.Spec, mount: a.mountOf(v.Pod, v.Name, target, want), want: want, path: v.Path}
	if want.ID == "" {
		f.id = state.PodVolumeID(kind, v.Pod, v.Name)
		if kind == local {
			f.id = state.SharedID(kind, v.Name)
		}
		f.spec = state.Spec{Driver: kind, Builtin: true, Name: v.Name, Mode: state.Filesystem, Config: json.RawMessage("{}")}
		f.spec = a.wanted(f.id, f.spec)
	}
	mounts = mounts || kind == emptyDir && inMemory(f.spec)
	phase(v.Seen.Exists && (v.Seen.Mounted || !mounts), &f.mount, v.Seen)
	a.add(f, func(*state.Volume) bool { return true })
	if kind == emptyDir && v.Files {
		a.fresh[v.Pod] = append(a.fresh[v.Pod], v.Name)
	}
}

// localDevice is where a kubelet mounts the device of a local volume for all pods.
func localDevice(l state.Layout, name string) string {
	return path.Join(l.Plugins(), "kubernetes.io/local-volume/mounts", name)
}

// inMemory reports whether an emptyDir is to be mounted: those in memory or huge
// pages are.
func inMemory(s state.Spec) bool {
	var source struct {
		Medium string `json:"medium"`
	}
	return json.Unmarshal(s.Config, &source) == nil && source.Medium != ""
}
