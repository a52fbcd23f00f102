package resolve

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Endpoints is the object that lists the servers of a glusterfs volume.
//
//lint:ignore SA1019 a glusterfs volume names no EndpointSlice
type Endpoints = corev1.Endpoints

// maxServers is how many servers a mount command gets. It uses the first that answers.
const maxServers = 16

// glusterFS is the configuration that the kind's driver reads: the volume and the
// servers from its Endpoints object.
type glusterFS struct {
	Servers []string `json:"servers"`
	Path    string   `json:"path"`
}

// glusterFS resolves a volume of the GlusterFS servers that its Endpoints object
// lists. The kind's driver checks path.
func (r *resolver) glusterFS(name string, endpoints Key, path string, readOnly bool) (state.VolumeWant, error) {
	if f, bad := checkSubdomain("glusterfs.endpoints", endpoints.Name); bad {
		return state.VolumeWant{}, fmt.Errorf("%s: %s", r.name(), f)
	}
	if f, bad := checkLabel("glusterfs.endpointsNamespace", endpoints.Namespace); bad {
		return state.VolumeWant{}, fmt.Errorf("%s: %s", r.name(), f)
	}
	o, ok := r.objects.Get(endpoints).(*Endpoints)
	if !ok {
		if err := r.unread(endpoints); err != nil {
			return state.VolumeWant{}, err
		}
		return state.VolumeWant{}, fmt.Errorf("%s: not found; want an Endpoints object with the addresses of the GlusterFS "+
			"servers", endpoints)
	}
	var servers []string
	for _, subset := range o.Subsets {
		for _, a := range subset.Addresses {
			servers = append(servers, a.IP)
		}
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	if len(servers) == 0 {
		return state.VolumeWant{}, fmt.Errorf("%s: subsets: found no addresses, want those of the GlusterFS servers",
			endpoints)
	}
	w, err := r.builtin(kind.GlusterFS, name, glusterFS{servers[:min(len(servers), maxServers)], path})
	w.Mount.ReadOnly, w.Mount.FSGroup = readOnly, nil
	return w, err
}

func (r *resolver) podGlusterFS(v *corev1.Volume, _ string) (state.VolumeWant, error) {
	s := v.Glusterfs
	return r.glusterFS(v.Name, Key{KindEndpoints, r.pod.Namespace, s.EndpointsName}, s.Path, s.ReadOnly)
}

// volumeGlusterFS resolves a PersistentVolume. Its Endpoints object is in the claim's
// namespace unless the volume names another.
func (r *resolver) volumeGlusterFS(pv *corev1.PersistentVolume) (state.VolumeWant, Fault, error) {
	s, namespace := pv.Spec.Glusterfs, r.pod.Namespace
	if n := s.EndpointsNamespace; n != nil && *n != "" {
		namespace = *n
	}
	w, err := r.glusterFS(pv.Name, Key{KindEndpoints, namespace, s.EndpointsName}, s.Path, s.ReadOnly)
	return w, Fault{}, err
}

// checkEndpoints checks the addresses, which become arguments of a command.
func checkEndpoints(o *Endpoints) []Fault {
	faults := checkMeta(o, true)
	for i, subset := range o.Subsets {
		for j, a := range subset.Addresses {
			if len(validation.IsValidIP(nil, a.IP)) > 0 {
				faults = append(faults, Fault{fmt.Sprintf("subsets[%d].addresses[%d].ip", i, j), a.IP, "an IP address"})
			}
		}
	}
	return faults
}
