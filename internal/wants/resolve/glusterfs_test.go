package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const glusterServers = `
apiVersion: v1
kind: Endpoints
metadata: {name: servers, namespace: NAMESPACE}
subsets:
- {addresses: [{ip: 192.0.2.2}, {ip: 192.0.2.1}], ports: [{port: 1}]}
- {addresses: [{ip: 192.0.2.1}], notReadyAddresses: [{ip: 192.0.2.9}]}
`

// A glusterfs volume has the servers of its Endpoints object, in the pod's namespace or in the one that a
// PersistentVolume names. Until they are known there is no volume, and the problem says what is missing.
func TestGlusterFSServersAreThoseOfItsEndpoints(t *testing.T) {
	const config = `{"servers":["192.0.2.1","192.0.2.2"],"path":"data/a"}`
	for where, tc := range map[string]struct {
		namespace string
		pv        *corev1.GlusterfsPersistentVolumeSource
	}{
		"inline":      {"default", nil},
		"pv":          {"default", &corev1.GlusterfsPersistentVolumeSource{EndpointsName: "servers", Path: "data/a", ReadOnly: true}},
		"pv of other": {"gluster", &corev1.GlusterfsPersistentVolumeSource{EndpointsName: "servers", EndpointsNamespace: ptr("gluster"), Path: "data/a", ReadOnly: true}},
	} {
		w := read(t, "testdata/base.yaml")
		if tc.pv != nil {
			w = ofKind(t, corev1.PersistentVolumeSource{Glusterfs: tc.pv})
			w.volume().Spec.MountOptions = []string{"acl"}
		} else {
			source(w, corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{EndpointsName: "servers", Path: "data/a", ReadOnly: true}})
		}
		w.config.Builtins = []state.DriverName{kind.GlusterFS}
		w.pod().Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000))}
		key := resolve.Key{Kind: "Endpoints", Namespace: tc.namespace, Name: "servers"}
		w.unread = map[resolve.Key]string{key: "not read"}
		if got := w.only(t).Problem; !strings.HasSuffix(got, key.String()+": not read") {
			t.Errorf("%s: not read: got %q", where, got)
		}
		w.unread = nil
		if got := w.only(t).Problem; !strings.Contains(got, key.String()+": not found") {
			t.Errorf("%s: not there: got %q", where, got)
		}
		w.add(t, "apiVersion: v1\nkind: Endpoints\nmetadata: {name: servers, namespace: "+tc.namespace+"}\n")
		if got := w.only(t).Problem; !strings.Contains(got, key.String()+": subsets: found no addresses") {
			t.Errorf("%s: empty: got %q", where, got)
		}
		w.add(t, strings.ReplaceAll(glusterServers, "NAMESPACE", tc.namespace))
		got := w.only(t)
		if got.Problem != "" || got.Spec.Driver != kind.GlusterFS || string(got.Spec.Config) != config || !got.Mount.ReadOnly || got.Mount.FSGroup != nil {
			t.Errorf("%s: got %+v", where, got)
		}
		if tc.pv != nil && (got.ID != state.SharedID(kind.GlusterFS, "pv-1") || strings.Join(got.Spec.MountFlags, ",") != "acl") {
			t.Errorf("%s: got %+v", where, got)
		}
	}
}

// The name and namespace of the Endpoints are checked before the lookup.
func TestGlusterFSEndpointsHaveNames(t *testing.T) {
	for _, name := range []string{"", "../x", "a/b", "A"} {
		w := read(t, "testdata/base.yaml")
		w.config.Builtins = []state.DriverName{kind.GlusterFS}
		source(w, corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{EndpointsName: name, Path: "data"}})
		if got := w.only(t).Problem; !strings.HasPrefix(got, "pod default/web: glusterfs.endpoints: found ") {
			t.Errorf("%q: got %q", name, got)
		}
	}
	w := ofKind(t, corev1.PersistentVolumeSource{Glusterfs: &corev1.GlusterfsPersistentVolumeSource{EndpointsName: "servers", EndpointsNamespace: ptr("a/b"), Path: "data"}})
	w.config.Builtins = []state.DriverName{kind.GlusterFS}
	if got := w.only(t).Problem; !strings.Contains(got, "glusterfs.endpointsNamespace: found ") {
		t.Errorf("namespace: got %q", got)
	}
}

// An address becomes part of an argument, so it must be a valid address.
func TestEndpointsHaveAddresses(t *testing.T) {
	w := parse(t, strings.ReplaceAll(glusterServers, "NAMESPACE", "default"))
	o := w.Get(resolve.Key{Kind: "Endpoints", Namespace: "default", Name: "servers"}).(*resolve.Endpoints)
	o.Subsets[0].Addresses[0].IP = "2001:db8::1"
	if faults := resolve.Check(o); len(faults) > 0 {
		t.Errorf("got %v", faults)
	}
	for _, ip := range []string{"", "a", "192.0.2.1:1", "fe80::1%eth0", "$(x)"} {
		o.Subsets[0].Addresses[1].IP = ip
		if faults := resolve.Check(o); len(faults) != 1 || faults[0].Field != "subsets[0].addresses[1].ip" {
			t.Errorf("%q: got %v", ip, faults)
		}
	}
}
