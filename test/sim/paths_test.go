package sim

import (
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// layout is where the volumes are.
var layout = state.Layout{Root: "/r"}

// place is what a path is of: a pod's volume, or with no pod what is staged.
type place struct{ uid, name string }

// places are all that there can be.
var places = func() map[string]place {
	all := map[string]place{}
	for name, v := range volumes {
		if !v.own {
			all[stagePath(name)] = place{name: name}
		}
		for _, uid := range pods {
			all[target(uid, name)] = place{uid, name}
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
		all[name] = layout.StagePath(state.Filesystem, v.driver, name, name)
		if drivers[v.driver].Builtin {
			all[name] = layout.BuiltinStagePath(v.driver, state.SharedID(v.driver, name))
		}
	}
	return all
}()

func stagePath(name string) string { return stages[name] }

func target(uid, name string) string {
	if kind := volumes[name].driver; drivers[kind].Builtin {
		return layout.Root + "/pods/" + uid + "/volumes/" + strings.ReplaceAll(string(kind), "/", "~") + "/" + name
	}
	return layout.Root + "/pods/" + uid + "/volumes/kubernetes.io~csi/" + name + "/mount"
}

// short is a path by which dice are thrown.
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
