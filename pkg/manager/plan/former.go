package plan

import (
	"maps"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// mostFormer bounds [state.Volume.Former], and so the record of a volume whose pods come and go
// while it stays staged.
const mostFormer = 128

// withFormer returns v's former targets with that of pod. If there are too many, one of the others
// is dropped. Built-in kinds count nothing.
func withFormer(v state.Volume, pod state.PodUID, target string) map[state.PodUID]string {
	if v.Spec.Value().Builtin || v.Former[pod] == target {
		return v.Former
	}
	former := maps.Clone(v.Former)
	if former == nil {
		former = map[state.PodUID]string{}
	}
	if _, has := former[pod]; !has && len(former) >= mostFormer {
		delete(former, byUID(former)[0])
	}
	former[pod] = target
	return former
}

// withoutFormer returns former without pod.
func withoutFormer(former map[state.PodUID]string, pod state.PodUID) map[state.PodUID]string {
	switch _, has := former[pod]; {
	case !has:
		return former
	case len(former) == 1:
		return nil
	}
	former = maps.Clone(former)
	delete(former, pod)
	return former
}
