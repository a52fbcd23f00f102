package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// FindPod returns the pod of a name: the one that a source wants, else one of
// that name that is being cleaned up.
func FindPod(pods []manager.PodStatus, ns, name string) (manager.PodStatus, bool) {
	var found manager.PodStatus
	ok := false
	for _, p := range pods {
		if p.Pod.Namespace != ns || p.Pod.Name != name {
			continue
		}
		if p.Listed {
			return p, true
		}
		found, ok = p, true
	}
	return found, ok
}

// FindVolume returns the one volume that a person calls name: by its id, by a
// shortened id, by its PersistentVolume's or in-pod name, by its claim
// ("namespace/name", or the bare name), or by its handle. Several volumes of
// one name are an error that lists their ids; ErrNotFound means none.
func FindVolume(volumes []manager.VolumeStatus, name string) (manager.VolumeStatus, error) {
	for _, is := range []func(v state.Volume) bool{
		func(v state.Volume) bool { return string(v.ID) == name },
		func(v state.Volume) bool { return v.Spec.Name == name || v.Spec.Claim == name || v.Spec.Handle == name },
		func(v state.Volume) bool {
			_, bare, _ := strings.Cut(v.Spec.Claim, "/")
			return v.Spec.Claim != "" && bare == name
		},
		func(v state.Volume) bool { return ShortID(v.ID) == name },
	} {
		var found []manager.VolumeStatus
		for _, v := range volumes {
			if is(v.Volume) {
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
				ids[i] = string(v.Volume.ID)
			}
			return manager.VolumeStatus{}, fmt.Errorf("%w: %d volumes are called %q; name one by its id: %s",
				ErrInvalid, len(found), name, strings.Join(ids, ", "))
		}
	}
	return manager.VolumeStatus{}, fmt.Errorf("%w: no volume on this node is called %q", ErrNotFound, name)
}

// shortID is how many characters of an id a table shows.
const shortID = 26

// ShortID is an id as tables show it: without the driver, and without its
// middle where it is long. [FindVolume] understands it.
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

// mountsOf lists what the runtime of the pod's containers needs, sorted by the
// pod's names for the volumes. Volumes that are not mounted are left out.
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
			out = append(out, Mount{
				Namespace: p.Pod.Namespace, Pod: p.Pod.Name, UID: p.Pod.UID,
				MountedVolume: manager.MountedVolume{
					Name: name, HostPath: v.HostPath, Mode: v.Mode, ReadOnly: v.ReadOnly, SpecName: spec.Name, Driver: v.Driver,
				},
				Propagation: propagation(spec),
			})
		}
	}
	slices.SortFunc(out, func(a, b Mount) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// propagation is what to give a container's bind mount: what a driver mounts
// over its target later (a FUSE daemon that came back) should reach the
// container; a directory of a built-in kind has no such later mounts.
func propagation(spec state.Spec) string {
	switch {
	case spec.Mode == state.Block:
		return ""
	case spec.Builtin:
		return "rprivate"
	default:
		return "rslave"
	}
}
