//go:build cluster

package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// A pod's status has what drivers report about its volumes, even about a volume whose stage
// fails, and the CSINode's status has what they report about their storage. A restarted
// daemon that finds everything healthy clears both. A node's own identity may write both,
// and so may the ClusterRole of deploy/. A server before Kubernetes 1.37 keeps neither, and
// nothing else changes.
//
// Items: Q06, Q07.
func TestHealthIsInTheClustersObjects(t *testing.T) {
	t.Parallel()
	for name, identity := range map[string]func(*testing.T) *rest.Config{
		"node": func(t *testing.T) *rest.Config {
			id, err := control.identity("system:node:health-node", "system:nodes")
			must(t, err)
			return id
		},
		"role": func(t *testing.T) *rest.Config {
			_, id := role(t)
			allowed(t, "system:serviceaccount:csi-volmgr:csi-volmgr", []string{"system:serviceaccounts"},
				authorizationv1.ResourceAttributes{Verb: "patch", Version: "v1", Resource: "pods", Subresource: "status"})
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "health-"+name, identity(t))
			c := unattached("health-"+name+".test", nil)
			c.script.With = []string{"GET_VOLUME_HEALTH", "GET_STORAGE_HEALTH"}
			c.script.Storage = []csistrict.Trouble{{Status: "STORAGE_DEGRADED", Reason: "OneRack", Message: "one rack of two"}}
			s := begin(t, n, c)
			s.n = n // the test restarts this node's daemon
			mounted, tried := "health-"+name+"-a", "health-"+name+"-b"
			s.static(mounted, nil)
			s.static(tried, nil)
			c.script.Health = map[string][]csistrict.Trouble{
				s.handle(mounted): {{Status: "DEGRADED", Reason: "OneDisk", Message: "one disk of two"}},
				s.handle(tried):   {{Status: "INACCESSIBLE", Reason: "NoPath"}, {Status: "DATA_LOSS", Reason: "Torn"}},
			}
			c.script.Faults = []csistrict.Fault{{ID: "stage", Call: "NodeStageVolume", Volume: s.handle(tried), Effect: csistrict.EffectNone, Code: uint32(codes.Unavailable)}}
			must(t, csistrict.WriteScript(s.dir, c.script))
			s.up(mounted, fromClaim(mounted))
			createPod(t, podWith(n.name, tried, fromClaim(tried)))
			if !control.health {
				s.n.eventually("the driver was asked", func() bool {
					return s.count("NodeGetVolumeHealth", csistrict.EventEnd) > 1 && s.count("NodeGetStorageHealth", csistrict.EventEnd) > 0
				})
				s.n.eventually("it is no problem that the server keeps none of it", func() bool { return !strings.Contains(s.n.problems(), "health of volumes") })
			} else {
				s.fares(mounted, "data Degraded/OneDisk/one disk of two")
				s.fares(tried, "data Inaccessible/NoPath/ DataLoss/Torn/")
				s.backend("StorageDegraded/OneRack/one rack of two")
			}
			s.n.kill()
			<-s.n.ended
			c.script.Health, c.script.Storage, c.script.Faults = nil, nil, nil
			must(t, csistrict.WriteScript(s.dir, c.script))
			s.n.start()
			s.n.mounted(tried)
			if control.health {
				s.fares(mounted, "data")
				s.fares(tried, "data")
				s.backend("")
			}
			s.down(mounted, tried)
			if name == "node" && control.health {
				for _, r := range requests(t, "system:node:"+n.name) {
					if strings.HasSuffix(r.resource(), "/status") && r.Response.Code != http.StatusOK {
						t.Errorf("refused: %s %s: %d", r.Verb, r.RequestURI, r.Response.Code)
					}
				}
			}
		})
	}
}

// handle returns the volume handle of a static volume.
func (s *shared) handle(volume string) string {
	s.t.Helper()
	pv, err := control.client.CoreV1().PersistentVolumes().Get(s.t.Context(), volume, metav1.GetOptions{})
	must(s.t, err)
	return pv.Spec.CSI.VolumeHandle
}

// fares waits until the pod's status says want about the health of its volumes.
func (s *scene) fares(pod, want string) {
	s.t.Helper()
	s.n.eventually("pod "+pod+" says "+want, func() bool {
		p, err := control.client.CoreV1().Pods("default").Get(s.t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return false
		}
		var lines []string
		for _, h := range p.Status.VolumeHealth {
			line := h.Name
			for _, c := range h.HealthConditions {
				line += fmt.Sprintf(" %s/%s/%s", c.Status, c.Reason, c.Message)
			}
			if h.LastTransitionTime.IsZero() {
				line += " at no time"
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "; ") == want
	})
}

// backend waits until the CSINode says want about the health of the driver's storage.
func (s *scene) backend(want string) {
	s.t.Helper()
	s.n.eventually("the CSINode says "+want, func() bool {
		c, err := control.client.StorageV1().CSINodes().Get(s.t.Context(), s.n.name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		i := slices.IndexFunc(c.Status.StorageHealth, func(h storagev1.StorageHealth) bool { return h.Name == s.name })
		if i < 0 {
			return want == ""
		}
		var all []string
		for _, c := range c.Status.StorageHealth[i].HealthConditions {
			all = append(all, fmt.Sprintf("%s/%s/%s", c.Status, c.Reason, c.Message))
		}
		return strings.Join(all, " ") == want
	})
}
