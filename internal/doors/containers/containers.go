// Package containers tells which mounts a container runtime has to make in a container of a pod, and
// undoes what was made for them.
//
// Owns: the paths, devices and images of a pod's volumes that containers get, and the bind mounts of
// their subpaths.
//
// Does not: mount a volume, or run a container.
package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes is the part of the manager that containers need.
type Volumes interface {
	Settle(ctx context.Context) error
	GetMountedVolumesForPod(uid state.PodUID) map[string]manager.MountedVolume
	Pod(uid state.PodUID) (manager.PodStatus, bool)
	Volume(id state.VolumeID) (manager.VolumeStatus, bool)
	Volumes() []manager.VolumeStatus
}

// Config is what a Giver needs; every field but HostPaths is required.
type Config struct {
	Parts *Parts
	// Volumes is the manager.
	Volumes Volumes
	// Catalog knows the containers of a pod.
	Catalog *source.Catalog
	// Image tells which images the container runtime mounts itself.
	Image *image.Driver
	// HostPaths lists the directories at or below which hostPath volumes may be.
	HostPaths []string
	Logger    *slog.Logger
}

// Giver gives containers their pod's volumes. Any goroutine may call its methods.
type Giver struct{ c Config }

// New returns a giver.
func New(c Config) *Giver { return &Giver{c} }

// ContainerMounts returns what the runtime mounts into a container of a pod, in the order of the
// container's spec (server.Containers). It makes and binds a subPath only now, because containers that
// ran before, such as init containers, may have made it (ADR 16). When a container restarts, a second
// call returns the same mounts, or those of the present files.
func (g *Giver) ContainerMounts(ctx context.Context, c server.Container) ([]server.ContainerMount, error) {
	key := source.Key{Kind: resolve.KindPod, Namespace: c.Namespace, Name: c.Pod}
	uid, wants, err := g.c.Catalog.Container(key, c.Name, resolve.Runtime{
		RecursiveReadOnly: c.RecursiveReadOnly, MountOptions: c.MountOptions, UserNamespaces: c.UserNamespaces,
	})
	switch {
	case errors.Is(err, source.ErrNotFound), errors.Is(err, resolve.ErrNoContainer):
		return nil, fmt.Errorf("%w: %w", server.ErrNotFound, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	if err := g.c.Volumes.Settle(ctx); err != nil {
		return nil, err
	}
	mounted := g.c.Volumes.GetMountedVolumesForPod(uid)
	mounts, err := g.containerMounts(ctx, uid, c, wants, mounted)
	if gone := g.removeGone(ctx, uid, mounted, wants); gone != nil {
		return nil, gone // err, if any, is about volumes that are gone, or comes again
	}
	return mounts, err
}

func (g *Giver) containerMounts(ctx context.Context, uid state.PodUID, c server.Container,
	wants []resolve.ContainerMount, mounted map[string]manager.MountedVolume,
) ([]server.ContainerMount, error) {
	key := source.Key{Kind: resolve.KindPod, Namespace: c.Namespace, Name: c.Pod}
	mounts := make([]server.ContainerMount, 0, len(wants))
	for _, w := range wants {
		v, ok := mounted[w.Volume]
		if !ok {
			return nil, fmt.Errorf("%w: volume %s of %s is not mounted: csi-volmgr explain pod %s -n %s", server.ErrConflict,
				w.Volume, key, c.Pod, c.Namespace)
		}
		m, err := g.containerMount(ctx, uid, c.Name, w, v)
		if err != nil {
			return nil, fmt.Errorf("%s, container %s: %w", key, c.Name, err)
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// removeGone removes the subpaths of volumes that were unmounted meanwhile: their removal may have come
// before the bind, and nothing else would remove them before the next start. The error names them. The
// client may have gone too, which changes nothing about that.
func (g *Giver) removeGone(ctx context.Context, uid state.PodUID, before map[string]manager.MountedVolume,
	wants []resolve.ContainerMount,
) error {
	ctx = context.WithoutCancel(ctx)
	if err := g.c.Volumes.Settle(ctx); err != nil {
		return err // the manager has ended: the next start removes what it unmounts
	}
	now := g.c.Volumes.GetMountedVolumesForPod(uid)
	var gone []string
	for _, w := range wants {
		if was, ok := before[w.Volume]; ok && now[w.Volume] != was && !slices.Contains(gone, w.Volume) {
			gone = append(gone, w.Volume)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := fmt.Errorf("%w: unmounted meanwhile: volume %s", server.ErrConflict, strings.Join(gone, ", "))
	for _, volume := range gone {
		err = errors.Join(err, g.c.Parts.Subpaths.Remove(ctx, uid, volume))
	}
	return err
}

func (g *Giver) containerMount(ctx context.Context, uid state.PodUID, container string, w resolve.ContainerMount,
	v manager.MountedVolume,
) (server.ContainerMount, error) {
	m := server.ContainerMount{
		Volume: w.Volume, HostPath: v.HostPath, ContainerPath: w.Path, SubPath: w.SubPath, ReadOnly: w.ReadOnly || w.Fixed ||
			v.ReadOnly,
		RecursiveReadOnly: w.RecursiveReadOnly, Note: w.Note, Propagation: w.Propagation,
		MountOptions: append([]string{}, w.Options...), MapIDs: w.MapIDs,
	}
	if w.Device {
		m.Device, m.Permissions = true, server.PermissionsOf(v.ReadOnly)
		return m, nil
	}
	if ok, err := g.byRuntime(&m, uid, v); ok || err != nil {
		return m, err
	}
	record, recorded := g.record(uid, w.Volume)
	if recorded { // a call that hangs takes a helper from its own kind, namespace and server
		ctx = watch.Within(ctx, record)
	}
	if err := g.maps(ctx, w, v); err != nil {
		return m, err
	}
	m.SELinuxRelabel = relabel(v, g.hasLabels)
	if w.SubPath == "" && !g.pinned(v, w.Propagation) {
		return m, nil
	}
	root, err := g.root(w, v, record.Spec)
	if err != nil {
		return m, err
	}
	m.HostPath, err = g.c.Parts.Subpaths.Bind(ctx, subpath.Request{
		Pod: uid, Volume: w.Volume, Container: container, Index: w.Index, Path: w.SubPath, Whole: w.SubPath == "",
		Root: root, ReadOnly: w.Fixed || v.ReadOnly, Peer: w.Propagation == "rshared",
		NoExec: slices.Contains(w.Options, string(corev1.BindMountOptionNoExec)),
		NoDev:  slices.Contains(w.Options, string(corev1.BindMountOptionNoDev)),
		NoSuid: slices.Contains(w.Options, string(corev1.BindMountOptionNoSUID)),
	})
	switch {
	case errors.Is(err, subpath.ErrMissing), errors.Is(err, subpath.ErrEscapes):
		err = fmt.Errorf("%w: %w", server.ErrInvalid, err)
	}
	return m, err
}

// maps refuses a volume whose ids must be mapped if the kernel cannot map them: the runtime would fail
// late, or show the volume with the node's ids.
func (g *Giver) maps(ctx context.Context, w resolve.ContainerMount, v manager.MountedVolume) error {
	if !w.MapIDs {
		return nil
	}
	m, err := g.c.Parts.Kernel.MapsIDs(ctx, v.HostPath)
	if err == nil && !m.IDs {
		err = fmt.Errorf("%w: volume %s of driver %s: spec.hostUsers: found false, want true or none, since this node's "+
			"kernel cannot map the ids of its file system (%s)", server.ErrInvalid, w.Volume, v.Driver, m.FSType)
	}
	return err
}

// pinned reports whether a container gets a whole volume by a mount of what is there now, rather than by
// a path that another container may replace before it is used. A path at, above or below the pods'
// directory would bring all their mounts along, and so would one of a driver that mounts below the root.
func (g *Giver) pinned(v manager.MountedVolume, propagation string) bool {
	own := g.c.Parts.Layout.Pods()
	if propagation != "rprivate" {
		own = g.c.Parts.Layout.Root
	}
	overlaps := pathname.Within(own, v.HostPath) || pathname.Within(v.HostPath, own)
	return v.Driver == hostpath.Kind && !overlaps && hostpath.Replaceable(g.c.HostPaths, v.HostPath)
}

// record returns the record of a pod's volume, given the pod's own name for it.
func (g *Giver) record(uid state.PodUID, volume string) (v state.Volume, ok bool) {
	p, _ := g.c.Volumes.Pod(uid)
	for _, pv := range p.Volumes {
		if slices.Contains(pv.Names, volume) {
			s, known := g.c.Volumes.Volume(pv.ID)
			return s.Volume, known && s.Volume.Spec != nil
		}
	}
	return state.Volume{}, false
}

// root says how the root of a volume is opened. spec is that of its record, nil without one. A container
// that gets a whole hostPath volume gets what its source says.
func (g *Giver) root(w resolve.ContainerMount, v manager.MountedVolume, spec *state.Spec) (subpath.Root, error) {
	if v.Driver != hostpath.Kind {
		return subpath.Root{Path: v.HostPath}, nil
	}
	if w.SubPath != "" {
		return subpath.Root{HostPath: &corev1.HostPathVolumeSource{Path: v.HostPath}, Allow: g.c.HostPaths}, nil
	}
	if spec == nil {
		return subpath.Root{}, fmt.Errorf("volume %s: %w: volume %s was unmounted meanwhile", w.Volume, server.ErrConflict,
			w.Volume)
	}
	var src corev1.HostPathVolumeSource
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return subpath.Root{}, fmt.Errorf("volume %s: hostPath: %w", w.Volume, err)
	}
	return subpath.Root{HostPath: &src, Allow: g.c.HostPaths}, nil
}

// relabel reports whether the runtime has to give the volume's files the pod's SELinux label (kubelet:
// each plugin's attributes): for volumes that csi-volmgr makes, for writable local volumes, and for
// volumes of disks and CSI drivers whose file system has labels and was not mounted with one. Files of a
// server or of the node itself are not the pod's to label.
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

// hasLabels reports whether the files of a volume can have SELinux labels of their own.
func (g *Giver) hasLabels(v manager.MountedVolume) bool {
	has, err := g.c.Parts.Kernel.HasLabels(v.HostPath)
	if err != nil {
		g.c.Logger.Warn("cannot tell whether a volume has SELinux labels", "driver", v.Driver, "err", err)
	}
	return has
}

// byRuntime makes m the mount of an image if the volume is an image that the container runtime has.
func (g *Giver) byRuntime(m *server.ContainerMount, uid state.PodUID, v manager.MountedVolume) (bool, error) {
	if v.Driver != image.Kind {
		return false, nil
	}
	reference, ok, err := g.c.Image.Runtime(uid, m.Volume)
	if ok {
		m.HostPath, m.Image = "", reference
	}
	return ok, err
}

// Sweep removes, once, subpaths that a crash left behind and whose volume no longer has a record. If a
// record cannot be read, all of them stay. It returns nil.
func (c Config) Sweep(ctx context.Context) error {
	if c.Volumes.Settle(ctx) != nil {
		return nil // the node is shutting down, or the manager has stopped
	}
	places, err := c.Parts.Subpaths.Places() // read before the records: a subpath bound later has a record
	if err != nil {
		c.Logger.Warn("cannot list subpaths that were left behind", "err", err)
	}
	known := map[subpath.Place]bool{}
	for _, v := range c.Volumes.Volumes() {
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
		if err := c.Parts.Subpaths.Remove(ctx, p.Pod, p.Volume); err != nil {
			c.Logger.Warn("cannot remove subpaths that were left behind", "pod", p.Pod, "volume", p.Volume, "err", err)
		}
	}
	return nil
}
