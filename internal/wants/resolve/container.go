package resolve

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

// ErrNoContainer means that the pod has no container of the given name.
var ErrNoContainer = errors.New("no such container")

// Runtime lists the abilities that a container runtime reports.
type Runtime struct {
	// RecursiveReadOnly is set if it can also make mounts below a mount read-only.
	RecursiveReadOnly bool
	// MountOptions is set if it can apply mount options to a container's mounts.
	MountOptions bool
	// UserNamespaces is set if it can run a pod in its own user namespace and map the
	// ids of its mounts.
	UserNamespaces bool
}

// ContainerMount is one mount or device of a container.
type ContainerMount struct {
	// Volume is the pod's name for the volume.
	Volume string
	// Index is the mount's index in volumeMounts; -1 for a raw block device.
	Index int
	// Path is where the volume appears in the container: a directory or file, or a
	// device for a raw block volume.
	Path   string
	Device bool
	// SubPath is the part of the volume to mount, expanded and clean; "" for all of it.
	SubPath string
	// ReadOnly is set if the container asks for a read-only mount.
	ReadOnly bool
	// Fixed is set if containers must not change the volume's content.
	Fixed bool
	// RecursiveReadOnly is set if mounts below this one must be read-only too.
	RecursiveReadOnly bool
	// Note says why RecursiveReadOnly is false although the container asked for it if possible.
	Note string
	// Propagation is rprivate, rslave or rshared; "" for a device.
	Propagation string
	// Options are the options among noexec, nodev and nosuid that the container asks for, sorted.
	Options []string
	// MapIDs is set if the mount's ids must be mapped to the pod's user namespace.
	MapIDs bool
}

// bindOptions are the mount options that a container may ask for, sorted.
var bindOptions = []string{
	string(corev1.BindMountOptionNoDev), string(corev1.BindMountOptionNoExec), string(corev1.BindMountOptionNoSUID),
}

// fixedKinds are the kinds of volumes whose content containers must not change.
var fixedKinds = []string{"configMap", "downwardAPI", "image", "projected", "secret"}

// IsFixed reports whether containers must not change the content of volumes whose source is in the field.
func IsFixed(field string) bool { return slices.Contains(fixedKinds, field) }

// Container returns the mounts and devices of the pod's container called name. Its
// error names the field; it is ErrNoContainer if the pod has no such container.
func Container(pod *corev1.Pod, name string, o Objects, c Config, can Runtime) ([]ContainerMount, error) {
	container, field, err := findContainer(pod, name)
	if err != nil {
		return nil, err
	}
	r := resolver{pod: pod, objects: o, config: c}
	read := content.Reader{Namespace: pod.Namespace, Objects: objects{&r}, Allocatable: r.allocatable()}
	u := unit{container: container, can: can, vars: read.Variables(container, c.NodeName)}
	if u.mapIDs, err = mapsIDs(pod, can); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name(), err)
	}
	var wants []ContainerMount
	for i, m := range container.VolumeMounts {
		kind := volumeKind(pod, m.Name)
		w, err := u.mount(m, kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %s.volumeMounts[%d].%w", r.name(), field, i, err)
		}
		w.Index, w.Fixed = i, IsFixed(kind)
		wants = append(wants, w)
	}
	for i, d := range container.VolumeDevices {
		if u.mapIDs { // the API server's validation refuses it too
			return nil, r.fault(Fault{
				fmt.Sprintf("%s.volumeDevices[%d].name", field, i), d.Name,
				"none with spec.hostUsers: false, since the owner of a device cannot be mapped",
			})
		}
		if !path.IsAbs(d.DevicePath) {
			return nil, r.fault(Fault{fmt.Sprintf("%s.volumeDevices[%d].devicePath", field, i), d.DevicePath, wantAbsolute})
		}
		wants = append(wants, ContainerMount{Volume: d.Name, Index: -1, Path: d.DevicePath, Device: true})
	}
	return wants, nil
}

// findContainer returns the pod's init, regular or ephemeral container and its field.
func findContainer(pod *corev1.Pod, name string) (*corev1.Container, string, error) {
	var names []string
	for _, l := range []struct {
		field string
		list  []corev1.Container
	}{{"spec.initContainers", pod.Spec.InitContainers}, {"spec.containers", pod.Spec.Containers}} {
		for i := range l.list {
			if l.list[i].Name == name {
				return &l.list[i], fmt.Sprintf("%s[%d]", l.field, i), nil
			}
			names = append(names, l.list[i].Name)
		}
	}
	for i, e := range pod.Spec.EphemeralContainers {
		if e.Name == name {
			c := corev1.Container(e.EphemeralContainerCommon)
			return &c, fmt.Sprintf("spec.ephemeralContainers[%d]", i), nil
		}
		names = append(names, e.Name)
	}
	return nil, "", fmt.Errorf("%w: pod %s/%s has %s, not %s", ErrNoContainer, pod.Namespace, pod.Name,
		strings.Join(names, ", "), show(name))
}

func volumeKind(pod *corev1.Pod, volume string) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == volume {
			kind, _, _ := sourceKind("", v.VolumeSource)
			return kind
		}
	}
	return ""
}

// unit resolves the mounts of one container.
type unit struct {
	container *corev1.Container
	can       Runtime
	vars      map[string]content.Variable
	mapIDs    bool
}

func (u unit) mount(m corev1.VolumeMount, kind string) (ContainerMount, error) {
	w := ContainerMount{Volume: m.Name, Path: m.MountPath, ReadOnly: m.ReadOnly, MapIDs: u.mapIDs}
	if m.MountPath == "" {
		return w, faultOf("mountPath", m.MountPath, "a path")
	}
	if !path.IsAbs(w.Path) {
		w.Path = "/" + w.Path // as the kubelet does
	}
	var err error
	if w.SubPath, err = u.subPath(m); err != nil {
		return w, err
	}
	if w.Propagation, err = u.propagation(m); err != nil {
		return w, err
	}
	if w.RecursiveReadOnly, w.Note, err = u.recursive(m); err != nil {
		return w, err
	}
	w.Options, err = u.options(m, kind)
	return w, err
}

// mapsIDs reports whether the pod has its own user namespace. It returns an error if
// the runtime cannot create one: a container would then use the volume with ids of the
// node that the volume's owner did not allow.
func mapsIDs(pod *corev1.Pod, can Runtime) (bool, error) {
	if h := pod.Spec.HostUsers; h == nil || *h {
		return false, nil
	}
	if !can.UserNamespaces {
		return false, faultOf("spec.hostUsers", "false", "true or none, or a runtime that maps the ids of mounts to a pod's "+
			"user namespace; this one did not say that it can")
	}
	return true, nil
}

// options returns the bind mount options that the container asks for (KEP-5855).
func (u unit) options(m corev1.VolumeMount, kind string) ([]string, error) {
	for i, o := range m.BindMountOptions {
		field := fmt.Sprintf("bindMountOptions[%d]", i)
		switch {
		case !slices.Contains(bindOptions, o):
			return nil, faultOf(field, o, "one of "+strings.Join(bindOptions, ", "))
		case slices.Contains(m.BindMountOptions[:i], o):
			return nil, faultOf(field, o, "each option once")
		case kind == "image":
			return nil, faultOf(field, o, "none, since an image volume has none")
		case !u.can.MountOptions:
			return nil, faultOf(field, o, "a runtime that gives mounts the options that it is asked for; this one did not say "+
				"that it can")
		}
	}
	return slices.Sorted(slices.Values(m.BindMountOptions)), nil
}

func faultOf(field, found, want string) error {
	return errors.New(Fault{field, found, want}.String())
}

const wantSubPath = "a relative path without '..', at most 4096 bytes"

func (u unit) subPath(m corev1.VolumeMount) (string, error) {
	field, text := "subPath", m.SubPath
	if m.SubPathExpr != "" {
		if m.SubPath != "" {
			return "", faultOf("subPathExpr", m.SubPathExpr, "only one of subPath and subPathExpr")
		}
		var err error
		field = "subPathExpr"
		if text, err = content.Expand(m.SubPathExpr, u.vars); err != nil {
			return "", fmt.Errorf("%s: %w", field, err)
		}
		if text == "" {
			return "", faultOf(field, m.SubPathExpr, "an expression that expands to a path, not to nothing")
		}
	}
	switch clean := path.Clean(text); {
	case text == "":
		return "", nil
	case path.IsAbs(text), slices.Contains(strings.Split(text, "/"), ".."), len(checkText("", text, maxPath)) > 0:
		return "", faultOf(field, text, wantSubPath)
	case clean == ".":
		return "", nil
	default:
		return clean, nil
	}
}

// propagation returns the mount propagation to ask the runtime for (mount_namespaces(7)).
func (u unit) propagation(m corev1.VolumeMount) (string, error) {
	if m.MountPropagation == nil {
		return "rprivate", nil
	}
	switch p := *m.MountPropagation; p {
	case corev1.MountPropagationNone:
		return "rprivate", nil
	case corev1.MountPropagationHostToContainer:
		return "rslave", nil
	case corev1.MountPropagationBidirectional:
		if sc := u.container.SecurityContext; sc == nil || sc.Privileged == nil || !*sc.Privileged {
			return "", faultOf("mountPropagation", string(p),
				"None or HostToContainer, since its mounts would reach the node and the container is not privileged")
		}
		return "rshared", nil
	default:
		return "", faultOf("mountPropagation", string(p), "None, HostToContainer or Bidirectional")
	}
}

// recursive reports whether mounts below must be read-only too (KEP-3857). note says
// why they are not although the container asked for it if possible.
func (u unit) recursive(m corev1.VolumeMount) (on bool, note string, err error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return false, "", nil
	}
	mode := *m.RecursiveReadOnly
	switch {
	case mode != corev1.RecursiveReadOnlyEnabled && mode != corev1.RecursiveReadOnlyIfPossible:
		return false, "", faultOf("recursiveReadOnly", string(mode), "Disabled, IfPossible or Enabled")
	case !m.ReadOnly:
		return false, "", faultOf("recursiveReadOnly", string(mode), "readOnly: true with it")
	case m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone:
		return false, "", faultOf("recursiveReadOnly", string(mode), "no mountPropagation with it, or None")
	case u.can.RecursiveReadOnly:
		return true, "", nil
	case mode == corev1.RecursiveReadOnlyEnabled:
		return false, "", faultOf("recursiveReadOnly", string(mode),
			"a runtime that can make mounts read-only recursively; this one did not say that it can")
	}
	return false, "not read-only recursively: the runtime did not say that it can", nil
}
