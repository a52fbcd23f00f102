package kube_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// endpoints is an object that lists one GlusterFS server.
func endpoints(t *testing.T, address string) *resolve.Endpoints {
	t.Helper()
	objects, err := manifest.Decode("x", []byte("{apiVersion: v1, kind: Endpoints, metadata: {name: servers}, subsets: [{addresses: [{ip: "+address+"}]}]}"))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0].(*resolve.Endpoints)
}

// The provider reads the servers of a glusterfs volume by name: often while the object is missing, and seldom once it
// is known. A node's identity may get Endpoints and may not watch them. A refused read shows in the volume's problem.
func TestEndpointsOfGlusterFSAreReadByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(s *fakeapi.Server) {
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
				if r.Resource == "endpoints" {
					return &fakeapi.Answer{Code: http.StatusForbidden}
				}
				return nil
			})
			s.Put(pod("p", corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{EndpointsName: "servers", Path: "data"}}))
		})
		w.expect("p", "endpoints default/servers: not read: ", "")
		w.server.Fail(nil)
		advance(5 * time.Minute)
		w.expect("p", "endpoints default/servers: not found", "")
		w.server.Put(endpoints(t, "192.0.2.1"))
		advance(5 * time.Minute)
		if got := string(w.volume("p").Spec.Config); !strings.Contains(got, "192.0.2.1") {
			t.Errorf("got %s", got)
		}
		w.server.Took()
		w.server.Put(endpoints(t, "192.0.2.2"))
		advance(2 * kube.DefaultRefresh)
		if got := string(w.volume("p").Spec.Config); !strings.Contains(got, "192.0.2.2") {
			t.Errorf("got %s", got)
		}
		asked := w.asked()
		if n := len(asked); n == 0 || n > 2 || slices.ContainsFunc(asked, func(r string) bool { return r != "get endpoints default/servers" }) {
			t.Errorf("asked %q", asked)
		}
		w.server.Delete("pods", "default/p")
		synctest.Wait()
		w.asked()
		advance(time.Hour)
		if asked := w.asked(); slices.ContainsFunc(asked, func(r string) bool { return strings.Contains(r, "endpoints") }) {
			t.Errorf("no pod needs them, and still: %q", asked)
		}
	})
}
