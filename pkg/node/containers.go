package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/subpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ContainerMounts returns what whoever runs a container of a pod is to mount
// into it, in the order of its spec. What the container names by subPath is
// found, made and bound by now and not before, since containers that ran
// before, as init containers, may have made it (ADR 16). Asked again, as for a
// container that is started again, it is the same, or what is there now.
func (n *Node) ContainerMounts(ctx context.Context, c server.Container) ([]server.ContainerMount, error) {
	key := source.Key{Kind: resolve.KindPod, Namespace: c.Namespace, Name: c.Pod}
	uid, wants, err := n.catalog.Container(key, c.Name, resolve.Runtime{RecursiveReadOnly: c.RecursiveReadOnly})
	switch {
	case errors.Is(err, source.ErrNotFound), errors.Is(err, resolve.ErrNoContainer):
		return nil, fmt.Errorf("%w: %w", server.ErrNotFound, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	if err := n.manager.Settle(ctx); err != nil {
		return nil, err
	}
	mounted := n.manager.GetMountedVolumesForPod(uid)
	mounts := make([]server.ContainerMount, 0, len(wants))
	for _, w := range wants {
		v, ok := mounted[w.Volume]
		if !ok {
			return nil, fmt.Errorf("%w: volume %s of %s is not mounted: csi-volmgr explain pod %s -n %s", server.ErrConflict,
				w.Volume, key, c.Pod, c.Namespace)
		}
		m, err := n.containerMount(ctx, uid, c.Name, w, v)
		if err != nil {
			return nil, fmt.Errorf("%s, container %s: %w", key, c.Name, err)
		}
		mounts = append(mounts, m)
	}
	return mounts, n.stillMounted(ctx, uid, mounted, wants)
}

// stillMounted undoes subpaths of volumes that were on their way out meanwhile:
// their removal may have come before the bind.
func (n *Node) stillMounted(ctx context.Context, uid state.PodUID, before map[string]manager.MountedVolume,
	wants []resolve.ContainerMount,
) error {
	err := n.manager.Settle(ctx)
	now := n.manager.GetMountedVolumesForPod(uid)
	for _, w := range wants {
		if now[w.Volume] == before[w.Volume] && err == nil {
			continue
		}
		gone := fmt.Errorf("%w: volume %s went away meanwhile", server.ErrConflict, w.Volume)
		return errors.Join(gone, err, n.subpaths.Remove(context.WithoutCancel(ctx), uid, w.Volume))
	}
	return nil
}

func (n *Node) containerMount(ctx context.Context, uid state.PodUID, container string, w resolve.ContainerMount,
	v manager.MountedVolume,
) (server.ContainerMount, error) {
	m := server.ContainerMount{
		Volume: w.Volume, HostPath: v.HostPath, ContainerPath: w.Path, SubPath: w.SubPath, ReadOnly: w.ReadOnly || w.Fixed ||
			v.ReadOnly,
		RecursiveReadOnly: w.RecursiveReadOnly, Note: w.Note, Propagation: w.Propagation,
	}
	if w.Device {
		m.Device, m.Permissions = true, "mrw"
		if v.ReadOnly {
			m.Permissions = "r"
		}
		return m, nil
	}
	if ok, err := n.byRuntime(&m, uid, v); ok || err != nil {
		return m, err
	}
	m.SELinuxRelabel = relabel(v, n.hasLabels)
	if w.SubPath == "" && !n.pinned(v, w.Propagation) {
		return m, nil
	}
	var err error
	m.HostPath, err = n.subpaths.Bind(ctx, subpath.Request{
		Pod: uid, Volume: w.Volume, Container: container, Index: w.Index, Path: w.SubPath, Whole: w.SubPath == "",
		ReadOnly: w.Fixed || v.ReadOnly,
		Open: func() (*os.File, error) {
			switch {
			case v.Driver == hostpath.Kind && w.SubPath == "":
				return n.openWhole(uid, w.Volume)
			case v.Driver == hostpath.Kind:
				return hostpath.Open(n.cfg.HostPaths, v.HostPath)
			}
			return n.kernel.Open(v.HostPath)
		},
	})
	switch {
	case errors.Is(err, subpath.ErrMissing), errors.Is(err, subpath.ErrEscapes):
		err = fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	return m, err
}

// pinned reports whether a container is given a volume as a whole by a mount of what
// is there now, and not by a path that another container may replace until it is used.
// A container that asks for propagation needs the host's own mount; a path at, above or
// below the pods' directory would bring all their mounts along.
func (n *Node) pinned(v manager.MountedVolume, propagation string) bool {
	pods := n.layout.Pods()
	overlaps := strings.HasPrefix(pods+"/", strings.TrimSuffix(v.HostPath, "/")+"/") ||
		strings.HasPrefix(v.HostPath, pods+"/")
	return v.Driver == hostpath.Kind && propagation == "rprivate" && !overlaps &&
		hostpath.Replaceable(n.cfg.HostPaths, v.HostPath)
}

// openWhole opens what a pod's hostPath volume leads to.
func (n *Node) openWhole(uid state.PodUID, volume string) (*os.File, error) {
	p, _ := n.manager.Pod(uid)
	for _, pv := range p.Volumes {
		if !slices.Contains(pv.Names, volume) {
			continue
		}
		v, _ := n.manager.Volume(pv.ID)
		var src corev1.HostPathVolumeSource
		if err := json.Unmarshal(v.Volume.Spec.Config, &src); err != nil {
			return nil, fmt.Errorf("hostPath: %w", err)
		}
		return hostpath.OpenWhole(n.cfg.HostPaths, src)
	}
	return nil, fmt.Errorf("%w: volume %s went away meanwhile", server.ErrConflict, volume)
}

// relabel reports whether the runtime is to give the volume's files the pod's
// SELinux label (kubelet: each plugin's attributes): those of our own making, those
// of a local volume that may be written, and those of disks and CSI drivers whose
// file system has labels and was not mounted with one. What a server or the node
// itself has is not the pod's to label.
func relabel(v manager.MountedVolume, hasLabels func(manager.MountedVolume) bool) bool {
	k, builtin := kind.Of(v.Driver)
	labels := k.Labels
	if !builtin {
		labels = kind.LabelsSupported
	}
	switch labels {
	case kind.LabelsAlways:
		return true
	case kind.LabelsWritable:
		return !v.ReadOnly
	case kind.LabelsSupported:
		return !v.ReadOnly && hasLabels(v)
	}
	return false
}

// hasLabels reports whether the files of a volume may have SELinux labels of their own.
func (n *Node) hasLabels(v manager.MountedVolume) bool {
	has, err := n.kernel.HasLabels(v.HostPath)
	if err != nil {
		n.log.Warn("whether a volume has SELinux labels is not known", "driver", v.Driver, "err", err)
	}
	return has
}

// beforeUnpublish ends what containers of the pod were given of a volume, and
// what a kubelet kept of it that it was taken over from, before the volume itself goes.
func (n *Node) beforeUnpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	if err := n.subpaths.Remove(ctx, pod, subpathNames(v, v.Mounts[pod])...); err != nil {
		return err
	}
	if err := n.keeper().BeforeUnpublish(ctx, v, pod); err != nil {
		return fmt.Errorf("remove what a kubelet kept of the volume: %w", err)
	}
	return nil
}

// keeper removes what a kubelet kept of a volume that was taken over from it.
func (n *Node) keeper() disk.Keeper { return disk.Keeper{Layout: n.layout, Kernel: n.kernel} }

// subpathNames are the names by which parts of the volume are mounted: the pod's
// own, and that of the PersistentVolume, which a kubelet takes.
func subpathNames(v state.Volume, m state.Mount) []string {
	if slices.Contains(m.Names, v.Spec.Name) {
		return m.Names
	}
	return append(slices.Clone(m.Names), v.Spec.Name)
}

// runSubpaths removes, once, what a crash left of subpaths whose volume has no
// record any more. Where a record cannot be read, all stay.
func (n *Node) runSubpaths(ctx context.Context) error {
	if n.manager.Settle(ctx) != nil {
		return nil // told to end, or the manager has
	}
	places, err := n.subpaths.Places() // before the records: of one that is bound from now on there is a record
	if err != nil {
		n.log.Warn("subpaths left behind are not known", "err", err)
	}
	known := map[subpath.Place]bool{}
	for _, v := range n.manager.Volumes() {
		if v.Quarantined != "" {
			return nil
		}
		for uid, m := range v.Volume.Mounts {
			for _, name := range subpathNames(v.Volume, m) {
				known[subpath.Place{Pod: uid, Volume: name}] = true
			}
		}
	}
	for _, p := range places {
		if known[p] {
			continue
		}
		if err := n.subpaths.Remove(ctx, p.Pod, p.Volume); err != nil {
			n.log.Warn("subpaths left behind stay", "pod", p.Pod, "volume", p.Volume, "err", err)
		}
	}
	return nil
}
