package sim

import (
	"path"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// layout is the paths of the volumes.
var layout = state.Layout{Root: "/r"}

// place is the owner of a path: a pod's volume, or without a pod a stage.
type place struct{ uid, name string }

// places are all possible paths.
var places = func() map[string]place {
	all := map[string]place{}
	for name, v := range volumes {
		if !v.own {
			all[stagePath(name)] = place{name: name}
		}
		for _, uid := range everyPod {
			if mayHave(uid, name) {
				all[target(uid, name)] = place{uid, name}
			}
		}
	}
	return all
}()

// stages are the staging paths of the volumes that pods share.
var stages = func() map[string]string {
	all := map[string]string{}
	for name, v := range volumes {
		if v.own {
			continue
		}
		all[name] = layout.StagePath(modeOf(v), v.driver, name, name)
		if drivers[v.driver].Builtin {
			all[name] = layout.BuiltinStagePath(v.driver, state.SharedID(v.driver, name))
		}
	}
	return all
}()

func modeOf(v volume) state.Mode {
	if v.block {
		return state.Block
	}
	return state.Filesystem
}

func stagePath(name string) string { return stages[name] }

func target(uid, name string) string {
	v := volumes[name]
	if drivers[v.driver].Builtin {
		return layout.BuiltinTarget(v.driver, state.PodUID(uid), name)
	}
	return layout.Target(modeOf(v), state.PodUID(uid), name)
}

// notesOf returns the path of a kubelet's notes about a path; a device has one file for all pods.
func notesOf(at string) string {
	if of := places[at]; volumes[of.name].block {
		return path.Join(layout.Plugins(), "kubernetes.io/csi/volumeDevices", of.name, "data", handover.NotesName)
	}
	return path.Join(path.Dir(at), handover.NotesName)
}

// made returns what a driver makes at a path: for the stage of a device, a directory.
func made(at string, dev uint64, layers int) *mount {
	of := places[at]
	v := volumes[of.name]
	if of.uid == "" && v.block {
		return &mount{dir: true, dev: dev, layers: 1}
	}
	return &mount{dir: of.uid != "" && !drivers[v.driver].MountsTarget, block: v.block, dev: dev, layers: layers}
}

// short returns a short form of a path, for dice.
func short(path string) string {
	switch at := places[path]; {
	case at.name == "":
		return path
	case at.uid == "":
		return "/stage/" + at.name
	default:
		return "/pods/" + at.uid + "/" + at.name
	}
}
