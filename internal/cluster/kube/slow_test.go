package kube_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// slow is a network on which an answer takes 200 ms.
type slow struct{ next http.RoundTripper }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(200 * time.Millisecond):
		return s.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// startSlow is startAs on a slow network, with a node's limits on requests.
func startSlow(t *testing.T, objects func(*fakeapi.Server)) *world {
	t.Helper()
	var server *fakeapi.Server
	w, _ := startAs(t, func(s *fakeapi.Server) {
		server = s
		objects(s)
	}, func(c *kube.Config) {
		wrap := func(next http.RoundTripper) http.RoundTripper { return kube.Transport(slow{next}) }
		c.Core, c.Storage = server.LimitedClients(wrap, 50, 100)
		core, storage := server.LimitedClients(wrap, 50, 100)
		c.Bulk = &kubeclient.Clients{Core: core, Storage: storage}
	})
	return w
}

// putClaims puts pods p0, p1, ... with claims c0, c1, ....
func putClaims(s *fakeapi.Server, pods int) {
	for i := range pods {
		claim(s, fmt.Sprintf("c%d", i))
		s.Put(claimPod(fmt.Sprintf("p%d", i), fmt.Sprintf("c%d", i)))
	}
}

// 500 pods with a claim each arrive at once, on a slow network and under a node's limits on requests. The provider
// lists and watches no more than for one pod, and reads each claim and volume once. A pod that only has a secret does
// not wait for them.
//
// Faults: A110.
func TestASecretDoesNotWaitForFiveHundredClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 500
		w := startSlow(t, func(s *fakeapi.Server) {
			s.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer { // as the node authorizer does
				if strings.HasPrefix(r.Resource, "persistentvolume") && r.Verb != "get" {
					return &fakeapi.Answer{Code: http.StatusForbidden}
				}
				return nil
			})
		})
		advance(10 * time.Second)
		w.server.Took()
		putClaims(w.server, pods)
		advance(time.Second) // hundreds of requests are waiting now
		w.server.Put(pod("secretive", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}))
		advance(time.Second)
		w.expect("secretive", "", "")
		advance(2 * time.Minute)
		for i := range pods {
			w.expect(state.PodUID(fmt.Sprintf("p%d", i)), "", "")
		}
		count := map[string]int{}
		for _, r := range w.server.Took() {
			f := strings.Fields(r)
			count[f[0]+" "+f[1]]++
		}
		want := map[string]int{
			"list csidrivers": 1, "watch csidrivers": 1, "list secrets": 1, "watch secrets": 1,
			"get persistentvolumes": pods, "list persistentvolumeclaims": 1,
			"get persistentvolumeclaims": count["get persistentvolumeclaims"],
		}
		if !maps.Equal(count, want) || count["get persistentvolumeclaims"] > 3*pods {
			t.Errorf("asked: %v", count)
		}
	})
}

// If the identity may list claims and volumes, the provider lists those of many simultaneous pods instead of reading
// them one by one under the request limits.
func TestFiveHundredClaimsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 500
		w := startSlow(t, func(*fakeapi.Server) {})
		advance(10 * time.Second)
		w.server.Took()
		putClaims(w.server, pods)
		advance(10 * time.Second)
		for i := range pods {
			w.expect(state.PodUID(fmt.Sprintf("p%d", i)), "", "")
		}
		read := 0
		for _, r := range w.server.Took() {
			if strings.HasPrefix(r, "list persistentvolume") || strings.HasPrefix(r, "get persistentvolume") {
				read++
			}
		}
		if read > pods/2 {
			t.Errorf("%d lists and gets, one for each claim and volume are %d", read, 2*pods)
		}
	})
}
