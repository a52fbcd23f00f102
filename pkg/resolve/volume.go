package resolve

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// builtinVolumes are the built-in kinds that a PersistentVolume may have.
var builtinVolumes = map[string]state.DriverName{"fc": FC, "glusterfs": GlusterFS, "hostPath": HostPath, "iscsi": ISCSI, "local": Local, "nfs": NFS}

// ours reports whether the volume is of a kind that is served in this process.
func (r *resolver) ours(pv *corev1.PersistentVolume) bool {
	set := sources(pv.Spec.PersistentVolumeSource)
	if len(set) != 1 {
		return false
	}
	if s := pv.Spec.CephFS; s != nil {
		return r.mountsCephFS(s.SecretRef != nil)
	}
	kind, ok := builtinVolumes[set[0]]
	return ok && r.has(kind)
}

// volumeKinds lists the kinds that a PersistentVolume may have here.
func (r *resolver) volumeKinds() []string {
	kinds := append(r.inTreeKinds(), "csi")
	for name, driver := range builtinVolumes {
		if r.has(driver) {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

// builtinVolume resolves a PersistentVolume of a kind of builtinVolumes.
func (r *resolver) builtinVolume(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, u claimUse) (state.VolumeWant, error) {
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
	w, fault, err := r.fromSource(pv, mode)
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
	if canGrow := w.Spec.StagePath != "" || w.Spec.Driver == Local; canGrow && !u.readOnly {
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
	return w, nil
}

// fromSource returns what the volume's source says.
func (r *resolver) fromSource(pv *corev1.PersistentVolume, mode state.Mode) (w state.VolumeWant, f Fault, err error) {
	var bad bool
	switch s := pv.Spec.PersistentVolumeSource; {
	case mode == state.Block && s.Local == nil && s.ISCSI == nil && s.FC == nil:
		return w, Fault{"spec.volumeMode", string(mode), "Filesystem, since the kind has no raw block volumes"}, nil
	case s.HostPath != nil:
		if f, bad = checkHostPath("spec.hostPath", s.HostPath); bad {
			return w, f, nil
		}
		if len(pv.Spec.MountOptions) > 0 {
			return w, Fault{"spec.mountOptions", strings.Join(pv.Spec.MountOptions, ","), "none, since nothing is mounted for a hostPath"}, nil
		}
		w, err = r.hostPath(pv.Name, s.HostPath)
	case s.Local != nil:
		if !absolute(s.Local.Path) {
			return w, Fault{"spec.local.path", s.Local.Path, wantAbsolute}, nil
		}
		if s.Local.FSType != nil {
			if f, bad = checkFSType("spec.local", *s.Local.FSType); bad {
				return w, f, nil
			}
		}
		w, err = r.builtin(Local, pv.Name, s.Local)
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
	case s.ISCSI != nil:
		if f, bad = checkFSType("spec.iscsi", s.ISCSI.FSType); bad {
			return w, f, nil
		}
		w, err = r.iscsi(pv.Name, iscsiInline(s.ISCSI))
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
		w.Spec.StageRef = secretRef(s.ISCSI.SecretRef)
	case s.FC != nil:
		if f, bad = checkFSType("spec.fc", s.FC.FSType); bad {
			return w, f, nil
		}
		w, err = r.fc(pv.Name, s.FC)
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
	case s.CephFS != nil:
		w, err = r.cephFS(pv.Name, &corev1.CephFSVolumeSource{
			Monitors: s.CephFS.Monitors, Path: s.CephFS.Path, User: s.CephFS.User, SecretFile: s.CephFS.SecretFile, ReadOnly: s.CephFS.ReadOnly,
		})
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
	case s.Glusterfs != nil:
		w, err = r.glusterVolume(pv.Name, s.Glusterfs)
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
	default: // nfs
		if f, bad = checkNFS("spec.nfs", s.NFS); bad {
			return w, f, nil
		}
		w, err = r.nfs(pv.Name, s.NFS)
		w.Spec.MountFlags = slices.Clone(pv.Spec.MountOptions)
	}
	return w, Fault{}, err
}

// maxPath is the kernel's limit on a path, in bytes.
const maxPath = 4096

const wantAbsolute = "an absolute path without '..', at most 4096 bytes"

func absolute(p string) bool {
	return path.IsAbs(p) && len(p) <= maxPath && !slices.Contains(strings.Split(p, "/"), "..") && len(checkText("", p, maxPath)) == 0
}

func checkHostPath(field string, src *corev1.HostPathVolumeSource) (Fault, bool) {
	return Fault{field + ".path", src.Path, wantAbsolute}, !absolute(src.Path)
}

// hostPath resolves a path of the node itself. Its owner is never changed.
func (r *resolver) hostPath(name string, src *corev1.HostPathVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(HostPath, name, src)
	w.Mount.HostPath, w.Mount.FSGroup = path.Clean(src.Path), nil
	return w, err
}

func checkNFS(field string, src *corev1.NFSVolumeSource) (Fault, bool) {
	if !server(src.Server) {
		return Fault{field + ".server", src.Server, "a host name or an IP address"}, true
	}
	return Fault{field + ".path", src.Path, wantAbsolute}, !absolute(src.Path)
}

// inlineNFS resolves one that a pod has without a claim.
func (r *resolver) inlineNFS(name, field string, src *corev1.NFSVolumeSource) (state.VolumeWant, error) {
	if f, bad := checkNFS(field, src); bad {
		return state.VolumeWant{}, r.fault(f)
	}
	return r.nfs(name, src)
}

// nfs resolves a directory of an NFS server. Its owner is the server's to change.
func (r *resolver) nfs(name string, src *corev1.NFSVolumeSource) (state.VolumeWant, error) {
	w, err := r.builtin(NFS, name, src)
	w.Mount.ReadOnly, w.Mount.FSGroup = src.ReadOnly, nil
	return w, err
}
