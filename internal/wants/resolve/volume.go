package resolve

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ours returns the built-in kind of the volume and whether this node serves it.
func (r *resolver) ours(pv *corev1.PersistentVolume) (kind.Kind, bool) {
	set := sources(pv.Spec.PersistentVolumeSource)
	if len(set) != 1 {
		return kind.Kind{}, false
	}
	k, ok := r.serves(set[0], pv.Spec.CephFS != nil && pv.Spec.CephFS.SecretRef != nil)
	return k, ok && k.PV
}

// builtinVolume resolves a PersistentVolume of a built-in kind.
func (r *resolver) builtinVolume(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim,
	u claimUse,
) (state.VolumeWant, error) {
	fail := func(err error) (state.VolumeWant, error) {
		return state.VolumeWant{}, fmt.Errorf("%s: %w", volumeKey(pv), err)
	}
	if faults := checkVolume(pv); len(faults) > 0 {
		return fail(errors.New(faults[0].String()))
	}
	mode := state.Filesystem
	if m := pv.Spec.VolumeMode; m != nil {
		mode = state.Mode(*m)
	}
	if err := r.checkMode(pv, mode, u.use); err != nil {
		return state.VolumeWant{}, err
	}
	if err := r.onThisNode(pv, false); err != nil {
		return fail(err)
	}
	k, _ := r.ours(pv)
	w, fault, err := r.fromSource(pv, k, mode)
	if fault != (Fault{}) {
		return fail(errors.New(fault.String()))
	}
	if err != nil {
		return fail(err)
	}
	w.ID = state.SharedID(w.Spec.Driver, pv.Name)
	if w.Spec.StagePath != "" {
		w.Spec.StagePath = r.config.Layout.BuiltinStagePath(w.Spec.Driver, w.ID)
	}
	if (k.Stages || k.Grows) && !u.readOnly {
		setSize(&w, pv, claim)
	}
	if mode == state.Block {
		w.Mount.FSGroup = nil
	}
	w.Spec.Claim, w.Spec.Mode = claim.Namespace+"/"+claim.Name, mode
	for _, m := range pv.Spec.AccessModes {
		w.Spec.AccessModes = append(w.Spec.AccessModes, state.AccessMode(m))
	}
	w.Mount.ReadOnly = w.Mount.ReadOnly || u.readOnly
	w.GID = gid(pv)
	if err := r.label(&w, u.volume, k.Context); err != nil {
		return state.VolumeWant{}, err
	}
	return w, nil
}

// fromSource resolves the source of a PersistentVolume of kind k.
func (r *resolver) fromSource(
	pv *corev1.PersistentVolume, k kind.Kind, mode state.Mode,
) (state.VolumeWant, Fault, error) {
	if mode == state.Block && !k.Block {
		f := Fault{"spec.volumeMode", string(mode), "Filesystem, since the kind has no raw block volumes"}
		return state.VolumeWant{}, f, nil
	}
	w, f, err := sourcesOf(k.Name).pv(r, pv)
	switch {
	case f != (Fault{}) || err != nil:
	case k.Mounts:
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
	case len(pv.Spec.MountOptions) > 0:
		f = Fault{
			"spec.mountOptions", optionKeys(pv.Spec.MountOptions...),
			"none, since nothing is mounted for a " + k.Field,
		}
	}
	return w, f, err
}

func (r *resolver) volumeLocal(pv *corev1.PersistentVolume) (w state.VolumeWant, f Fault, err error) {
	s := pv.Spec.Local
	if !absolute(s.Path) {
		return w, Fault{"spec.local.path", s.Path, wantAbsolute}, nil
	}
	if s.FSType != nil {
		if f, bad := checkFSType("spec.local", *s.FSType); bad {
			return w, f, nil
		}
	}
	w, err = r.builtin(kind.Local, pv.Name, s)
	return w, f, err
}

// maxPath is the kernel's limit on a path, in bytes.
const maxPath = 4096

const wantAbsolute = "an absolute path without '..', at most 4096 bytes"

func absolute(p string) bool {
	return path.IsAbs(p) && len(p) <= maxPath && !slices.Contains(strings.Split(p, "/"), "..") &&
		len(checkText("", p, maxPath)) == 0
}

func checkHostPath(field string, src *corev1.HostPathVolumeSource) (Fault, bool) {
	return Fault{field + ".path", src.Path, wantAbsolute}, !absolute(src.Path)
}

func (r *resolver) podHostPath(v *corev1.Volume, field string) (state.VolumeWant, error) {
	if f, bad := checkHostPath(field, v.HostPath); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	return r.hostPath(v.Name, v.HostPath)
}

func (r *resolver) volumeHostPath(pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error) {
	if f, bad := checkHostPath("spec.hostPath", pv.Spec.HostPath); bad {
		return state.VolumeWant{}, f, nil
	}
	w, err := r.hostPath(pv.Name, pv.Spec.HostPath)
	return w, Fault{}, err
}

// hostPath resolves a path on the node itself. Its files keep their group, so
// there is no FSGroup.
func (r *resolver) hostPath(name string, src *corev1.HostPathVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(kind.HostPath, name, src)
	w.Mount.HostPath, w.Mount.FSGroup = path.Clean(src.Path), nil
	return w, err
}

func checkNFS(field string, src *corev1.NFSVolumeSource) (Fault, bool) {
	if !isServer(src.Server) {
		return Fault{field + ".server", src.Server, "a host name or an IP address"}, true
	}
	return Fault{field + ".path", src.Path, wantAbsolute}, !absolute(src.Path)
}

func (r *resolver) podNFS(v *corev1.Volume, field string) (state.VolumeWant, error) {
	if f, bad := checkNFS(field, v.NFS); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	return r.nfs(v.Name, v.NFS)
}

func (r *resolver) volumeNFS(pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error) {
	if f, bad := checkNFS("spec.nfs", pv.Spec.NFS); bad {
		return state.VolumeWant{}, f, nil
	}
	w, err := r.nfs(pv.Name, pv.Spec.NFS)
	return w, Fault{}, err
}

// nfs resolves a directory of an NFS server. Only the server changes the owner of
// its files, so there is no FSGroup.
func (r *resolver) nfs(name string, src *corev1.NFSVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(kind.NFS, name, src)
	w.Mount.ReadOnly, w.Mount.FSGroup = src.ReadOnly, nil
	return w, err
}
