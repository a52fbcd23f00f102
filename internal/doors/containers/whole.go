package containers

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Why the mounts of a pod are not those of its containers.
const (
	noteDiffer = "the containers mount it differently: ask for the mounts of each"
	notePath   = "the host's own path, which another container may replace: ask for the mounts of each container"
)

// Whole returns the mounts of a pod's volumes with what its containers ask for. It makes nothing, so that
// a hostPath volume is the host's own path, and says so (server.Containers).
func (g *Giver) Whole(pod []server.Mount) []server.Mount {
	pod = slices.Clone(pod)
	if len(pod) == 0 {
		return pod
	}
	key := source.Key{Kind: resolve.KindPod, Namespace: pod[0].Namespace, Name: pod[0].Pod}
	wants := g.c.Catalog.Wholes(key, pod[0].UID)
	for i := range pod {
		m := &pod[i]
		if m.Mode == state.Block {
			continue
		}
		if k, builtin := kind.Of(m.Driver); builtin {
			m.ReadOnly = m.ReadOnly || resolve.IsFixed(k.Field)
		}
		w, known := wants[m.Name]
		if known {
			m.ReadOnly, m.Propagation = m.ReadOnly || w.ReadOnly, w.Propagation
		}
		switch v := (manager.MountedVolume{Driver: m.Driver, HostPath: m.HostPath}); {
		case m.Driver == hostpath.Kind && g.pinned(v, m.Propagation):
			m.Note = notePath
		case w.Differ:
			m.Note = noteDiffer
		}
	}
	return pod
}
