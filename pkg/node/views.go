package node

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/file"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/kube"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/made"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Views shows claims, volumes and inputs to the node API; it satisfies
// server.Claims and server.Health.
type Views struct{ n *Node }

// Views returns what the node API shows besides the manager's own.
func (n *Node) Views() Views { return Views{n} }

// Changed returns a channel that is closed at the next change of claims, volumes or inputs.
func (v Views) Changed() <-chan struct{} { return v.n.changed.next() }

// Claims lists the claims of the sources and those whose volumes are kept, sorted.
func (v Views) Claims() []server.ClaimStatus {
	kept := map[controller.Key]controller.ClaimStatus{}
	for _, c := range v.n.controller.Claims() {
		kept[c.Claim] = c
	}
	var out []server.ClaimStatus
	for _, claim := range v.n.catalog.Claims() {
		key := controller.Key{Namespace: claim.Namespace, Name: claim.Name}
		s := server.ClaimStatus{
			Namespace: claim.Namespace, Name: claim.Name, Phase: string(controller.Pending),
			RequestedBytes: claim.Spec.Resources.Requests.Storage().Value(),
			AccessModes:    made.AccessModes(claim.Spec.AccessModes), Mode: made.ModeOf(claim.Spec.VolumeMode),
		}
		if claim.Spec.StorageClassName != nil {
			s.Class = *claim.Spec.StorageClassName
		}
		if c, ok := kept[key]; ok {
			fromController(&s, c)
			delete(kept, key)
		} else if pv := v.n.volumeOf(claim); pv != nil {
			s.Phase, s.Volume, s.CapacityBytes = "Bound", pv.Name, pv.Spec.Capacity.Storage().Value()
		}
		out = append(out, s)
	}
	for _, key := range slices.SortedFunc(maps.Keys(kept), compareKeys) {
		s := server.ClaimStatus{Namespace: key.Namespace, Name: key.Name}
		fromController(&s, kept[key])
		out = append(out, s)
	}
	return out
}

func compareKeys(a, b controller.Key) int {
	return made.CatalogKey(a).Compare(made.CatalogKey(b))
}

// volumeOf returns the volume that a claim which the controller does not make is bound to.
func (n *Node) volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	for _, pv := range n.catalog.Volumes() {
		r := pv.Spec.ClaimRef
		if pv.Name == claim.Spec.VolumeName || r != nil && r.Namespace == claim.Namespace && r.Name == claim.Name {
			return pv
		}
	}
	return nil
}

// fromController fills in what the controller knows of a claim.
func fromController(s *server.ClaimStatus, c controller.ClaimStatus) {
	s.Phase, s.Reason, s.Retry = string(c.Phase), made.Note(c), c.Retry
	s.Call, s.Refused = c.Call, c.Refused
	if c.Class != "" {
		s.Class = c.Class
	}
	if vol := c.Volume; vol != nil {
		s.Volume, s.Driver, s.CapacityBytes, s.NodeBytes = vol.Name, vol.Driver, vol.CapacityBytes, vol.NodeBytes
		s.AccessModes, s.Mode = vol.AccessModes, vol.Mode
	}
}

// PersistentVolumes lists every volume of the catalog, by name.
func (v Views) PersistentVolumes() []server.PVStatus {
	var out []server.PVStatus
	for _, pv := range v.n.catalog.Volumes() {
		s := server.PVStatus{
			Name: pv.Name, CapacityBytes: pv.Spec.Capacity.Storage().Value(),
			Mode: made.ModeOf(pv.Spec.VolumeMode), AccessModes: made.AccessModes(pv.Spec.AccessModes), Status: "Available",
		}
		if csi := pv.Spec.CSI; csi != nil {
			s.Driver, s.Handle = state.DriverName(csi.Driver), csi.VolumeHandle
		}
		if r := pv.Spec.ClaimRef; r != nil {
			s.Claim, s.Status = r.Namespace+"/"+r.Name, "Released"
			if v.n.catalog.Get(made.CatalogKey(controller.Key{Namespace: r.Namespace, Name: r.Name})) != nil {
				s.Status = "Bound"
			}
		}
		out = append(out, s)
	}
	return out
}

// Problems lists what is wrong with manifests and applied objects.
func (v Views) Problems() []server.Problem {
	lists := [][]source.Problem{v.n.api.Problems(), v.n.catalog.Problems()}
	if v.n.file != nil {
		lists = append(lists, v.n.file.Problems())
	}
	out := v.n.clusterProblems()
	for _, p := range slices.Concat(lists...) {
		out = append(out, v.n.problem(p))
	}
	out = append(out, v.n.journalProblems()...)
	if v.n.runtime != nil && v.n.runtime.Problem() != "" {
		out = append(out, server.Problem{
			Source: "container runtime", Object: v.n.runtime.Endpoint(),
			Message: v.n.runtime.Problem(),
		})
	}
	return out
}

// Degraded says what an operator has to look at (server.Health).
func (v Views) Degraded() (out []string) {
	if away := v.n.awayText(); away != "" {
		out = append(out, away)
	}
	for _, p := range v.n.journalProblems() {
		out = append(out, p.String())
	}
	return out
}

// lost says what an operator has to do after the journal may have lost records; "" where
// it has not.
func (n *Node) lost() string {
	r := n.journal.Recovery()
	if r.Why == "" {
		return ""
	}
	return "records may be lost (" + r.Why + "): what is mounted without a record counts as in use; " +
		"look with csi-volmgr get problems, then csi-volmgr journal accept"
}

// journalProblems says that the journal may have lost records, what is mounted without
// one since, and that the journal has no spare copy.
func (n *Node) journalProblems() (out []server.Problem) {
	path := filepath.Join(n.cfg.StateDir, "state.db")
	if lost := n.lost(); lost != "" {
		out = append(out, server.Problem{Source: "journal", Object: path, Message: lost})
	}
	for _, p := range n.manager.Unrecorded().Places {
		who := "it counts as in use"
		if p.Pod != "" {
			who = "pod " + string(p.Pod) + " may use it"
		}
		out = append(out, server.Problem{Source: "journal", Object: p.Path, Message: "mounted without a record: " + who +
			"; look with: csi-volmgr who " + p.Path})
	}
	if err := n.journal.SpareErr(); err != nil {
		out = append(out, server.Problem{Source: "journal", Object: path, Message: err.Error() +
			": damage of the journal could not be mended; stop the daemon and look with csi-volmgr journal check"})
	}
	return out
}

// problem tells a source's problem as the API does: what is wrong with a
// manifest by the file's whole path and the line, which its text begins with.
func (n *Node) problem(p source.Problem) server.Problem {
	out := server.Problem{Source: p.Provider, Object: p.Where, Message: p.Text}
	if p.Provider != file.Name || p.Where == n.cfg.Manifests {
		return out
	}
	out.Object, out.File = "", filepath.Join(n.cfg.Manifests, p.Where)
	if rest, ok := strings.CutPrefix(p.Text, p.Where+":"); ok {
		line, rest, _ := strings.Cut(rest, ":")
		if number, err := strconv.Atoi(line); err == nil {
			out.Line, out.Message = number, strings.TrimSpace(rest)
		}
	}
	return out
}

// Sockets lists the registration sockets.
func (v Views) Sockets() []server.SocketStatus {
	var out []server.SocketStatus
	for _, s := range v.n.registry.Sockets() {
		out = append(out, server.SocketStatus{Path: s.Path, Driver: s.Driver, State: string(s.State), Problem: s.Problem})
	}
	return out
}

// NotReady says which sources have not spoken.
func (v Views) NotReady() []string {
	away := v.n.awayText()
	v.n.mu.Lock()
	defer v.n.mu.Unlock()
	var out []string
	for _, s := range slices.Sorted(maps.Keys(v.n.silent)) {
		text := "source " + s + " has not spoken yet"
		if s == kube.Name && away != "" {
			text += ": " + away
		}
		out = append(out, text)
	}
	return out
}
