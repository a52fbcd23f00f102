package state

import (
	"path/filepath"
	"strings"
)

// Layout says where volumes live below a node's root directory: the kubelet's layout,
// which drivers and their manifests rely on. Its methods only join strings. Names that
// become part of a path (pod UID, volume name, PersistentVolume name, driver name) must
// already be validated where they enter; a volume handle reaches a path only as its hash
// (rule 8).
type Layout struct{ Root string }

// Registry returns the directory of registration sockets.
func (l Layout) Registry() string { return filepath.Join(l.Root, "plugins_registry") }

// Plugins returns the parent of the drivers' directories.
func (l Layout) Plugins() string { return filepath.Join(l.Root, "plugins") }

// Pods returns the parent of the pods' directories.
func (l Layout) Pods() string { return filepath.Join(l.Root, "pods") }

// StagePath returns the staging_target_path of a volume.
func (l Layout) StagePath(mode Mode, driver DriverName, handle, name string) string {
	if mode == Block {
		return filepath.Join(l.blockDir(), "staging", name)
	}
	return filepath.Join(l.Plugins(), "kubernetes.io", "csi", string(driver), hashHex(handle), "globalmount")
}

// Target returns the target_path of a CSI volume for a pod.
func (l Layout) Target(mode Mode, pod PodUID, name string) string {
	if mode == Block {
		return filepath.Join(l.blockDir(), "publish", name, string(pod))
	}
	return filepath.Join(l.podVolumes(pod, "volumes", "kubernetes.io/csi"), name, "mount")
}

// DevicePath returns the path of the pod's symlink to the device of a raw block volume.
func (l Layout) DevicePath(pod PodUID, name string) string {
	return filepath.Join(l.podVolumes(pod, "volumeDevices", "kubernetes.io/csi"), name)
}

// BuiltinTarget returns the directory of a built-in kind's volume.
func (l Layout) BuiltinTarget(kind DriverName, pod PodUID, name string) string {
	return filepath.Join(l.podVolumes(pod, "volumes", string(kind)), name)
}

// BuiltinStagePath returns where a volume of a built-in kind with a stage is mounted
// before pods get it.
func (l Layout) BuiltinStagePath(kind DriverName, id VolumeID) string {
	return filepath.Join(l.Plugins(), string(kind), hashHex(string(id)), "globalmount")
}

func (l Layout) blockDir() string {
	return filepath.Join(l.Plugins(), "kubernetes.io", "csi", "volumeDevices")
}

func (l Layout) podVolumes(pod PodUID, dir, plugin string) string {
	return filepath.Join(l.Pods(), string(pod), dir, strings.ReplaceAll(plugin, "/", "~"))
}

// Place says what a path below a node's root is for.
type Place struct {
	Path string `json:"path"`
	// Pod is the pod that has a volume there; "" if the path is a stage.
	Pod PodUID `json:"pod,omitempty"`
	// Name is the PersistentVolume's name, or the pod's name for an inline volume; "" if
	// the path of a stage does not contain it.
	Name string `json:"name,omitempty"`
	// Builtin means that the volume is of a built-in kind.
	Builtin bool `json:"builtin,omitempty"`
	// Kind is the built-in kind's name, as "kubernetes.io/nfs"; "" for a driver's volume.
	Kind DriverName `json:"kind,omitempty"`
}

// Place parses a path made by [Layout.StagePath], [Layout.Target], [Layout.BuiltinTarget]
// or [Layout.BuiltinStagePath]. It returns false for every other path.
func (l Layout) Place(path string) (Place, bool) {
	rel, below := strings.CutPrefix(path, l.Root+"/")
	if !below {
		return Place{}, false
	}
	p, parts := Place{Path: path}, strings.Split(rel, "/")
	n := len(parts)
	switch {
	case n >= 5 && parts[0] == "pods" && parts[2] == "volumes":
		p.Pod, p.Name, p.Builtin = PodUID(parts[1]), parts[4], parts[3] != "kubernetes.io~csi"
		if p.Builtin {
			p.Kind = DriverName(strings.ReplaceAll(parts[3], "~", "/"))
		}
		return p, n == 5 && p.Builtin || n == 6 && !p.Builtin && parts[5] == "mount"
	case n == 7 && strings.HasPrefix(path, l.blockDir()+"/publish/"):
		p.Pod, p.Name = PodUID(parts[6]), parts[5]
		return p, true
	case n == 6 && strings.HasPrefix(path, l.blockDir()+"/staging/"):
		p.Name = parts[5]
		return p, true
	case parts[0] == "plugins" && n > 2 && parts[n-1] == "globalmount":
		if p.Builtin = !strings.HasPrefix(rel, "plugins/kubernetes.io/csi/"); p.Builtin {
			p.Kind = DriverName(strings.Join(parts[1:n-2], "/"))
		}
		return p, true
	}
	return Place{}, false
}
