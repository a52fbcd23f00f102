package server

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// FindPod returns the pod of a name: the one that a source wants, else one that is
// being cleaned up.
func FindPod(pods []PodStatus, ns, name string) (PodStatus, bool) {
	return findPod(pods, func(p PodStatus) (is, listed bool) {
		return p.Pod.Namespace == ns && p.Pod.Name == name, p.Listed
	})
}

func podNamed(pods []manager.PodStatus, ns, name string) (manager.PodStatus, bool) {
	return findPod(pods, func(p manager.PodStatus) (is, listed bool) {
		return p.Pod.Namespace == ns && p.Pod.Name == name, p.Listed
	})
}

// NotKnown is the error for an object of a namespace that is not known here. others are the namespaces that have one of
// that name.
func NotKnown(kind, ns, name string, others []string) error {
	text := ""
	if len(others) > 0 {
		text = fmt.Sprintf("; there is one in namespace %s: repeat with -n %s", strings.Join(others, ", "), others[0])
	}
	return fmt.Errorf("%w: %s %s/%s is not known here%s", ErrNotFound, kind, ns, name, text)
}

// NamespacesOf returns the namespaces that have an object of the name, from keys "namespace/name".
func NamespacesOf(keys iter.Seq[string], name string) (found []string) {
	for key := range keys {
		if ns, of, _ := strings.Cut(key, "/"); of == name && !slices.Contains(found, ns) {
			found = append(found, ns)
		}
	}
	slices.Sort(found)
	return found
}

// podKeys are the keys of the pods that a source lists.
func podKeys(pods []manager.PodStatus) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, p := range pods {
			if p.Listed && !yield(p.Pod.Namespace+"/"+p.Pod.Name) {
				return
			}
		}
	}
}

func findPod[T any](pods []T, look func(T) (is, listed bool)) (found T, ok bool) {
	for _, p := range pods {
		is, listed := look(p)
		if is && listed {
			return p, true
		}
		if is {
			found, ok = p, true
		}
	}
	return found, ok
}

// FindVolume returns the volume that a person calls name: by its id, shortened id,
// PersistentVolume's or in-pod name, claim ("namespace/name" or the bare name), or
// handle. If several volumes match, the error lists their ids; ErrNotFound means that
// none does.
func FindVolume(volumes []VolumeStatus, name string) (VolumeStatus, error) {
	return findVolume(volumes, name, func(v VolumeStatus) volumeNames {
		s := v.Volume.Spec.Value()
		return volumeNames{v.Volume.ID, s.Name, s.Claim, s.Handle}
	})
}

func volumeNamed(volumes []manager.VolumeStatus, name string) (manager.VolumeStatus, error) {
	return findVolume(volumes, name, func(v manager.VolumeStatus) volumeNames {
		s := v.Volume.Spec.Value()
		return volumeNames{v.Volume.ID, s.Name, s.Claim, s.Handle}
	})
}

// volumeNames are the names by which people find a volume.
type volumeNames struct {
	id                  state.VolumeID
	name, claim, handle string
}

func findVolume[T any](volumes []T, name string, names func(T) volumeNames) (none T, _ error) {
	if name == "" { // a volume without a claim has an empty name too
		return none, fmt.Errorf("%w: expected the name of a volume, found an empty one", ErrInvalid)
	}
	for _, is := range []func(v volumeNames) bool{
		func(v volumeNames) bool { return string(v.id) == name },
		func(v volumeNames) bool { return v.name == name || v.claim == name || v.handle == name },
		func(v volumeNames) bool {
			_, bare, _ := strings.Cut(v.claim, "/")
			return v.claim != "" && bare == name
		},
		func(v volumeNames) bool { return ShortID(v.id) == name },
	} {
		var found []T
		for _, v := range volumes {
			if is(names(v)) {
				found = append(found, v)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			ids := make([]string, len(found))
			for i, v := range found {
				ids[i] = string(names(v).id)
			}
			return none, fmt.Errorf("%w: %d volumes are called %q; name one by its id: %s",
				ErrInvalid, len(found), name, strings.Join(ids, ", "))
		}
	}
	return none, fmt.Errorf("%w: no volume on this node is called %q", ErrNotFound, name)
}

// shortID is the number of characters of an id in a table.
const shortID = 26

// ShortID returns an id as tables show it: without the driver and, if it is long,
// without its middle. [FindVolume] understands it.
func ShortID(id state.VolumeID) string {
	_, s, ok := strings.Cut(string(id), "^")
	if !ok {
		s = string(id)
	}
	r := []rune(s)
	if len(r) <= shortID {
		return s
	}
	return string(r[:12]) + "…" + string(r[len(r)-(shortID-13):])
}

// mountsOf lists the mounted volumes that the pod's container runtime needs, sorted by
// the pod's names for them.
func (s *Server) mountsOf(p manager.PodStatus) []Mount {
	var out []Mount
	for _, v := range p.Volumes {
		if !v.Mounted || v.HostPath == "" {
			continue
		}
		var spec state.Spec
		if st, ok := s.cfg.Volumes.Volume(v.ID); ok {
			spec = st.Volume.Spec.Value()
		}
		for _, name := range v.Names {
			m := Mount{
				Namespace: p.Pod.Namespace, Pod: p.Pod.Name, UID: p.Pod.UID,
				Name: name, HostPath: v.HostPath, Mode: v.Mode, ReadOnly: v.ReadOnly, SpecName: spec.Name, Driver: v.Driver,
			}
			if v.Mode == state.Block {
				m.Permissions = PermissionsOf(v.ReadOnly)
			} else {
				m.Propagation = "rprivate"
			}
			out = append(out, m)
		}
	}
	if s.cfg.Containers != nil {
		out = s.cfg.Containers.Whole(out)
	}
	slices.SortFunc(out, func(a, b Mount) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// PermissionsOf returns the permissions of a device that containers only read, or write too.
func PermissionsOf(readOnly bool) string {
	if readOnly {
		return "r"
	}
	return "mrw"
}
