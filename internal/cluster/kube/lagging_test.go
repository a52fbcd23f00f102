package kube_test

import (
	"fmt"
	"net/http"
	"sync"
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

// lagging is a server that takes a while for each answer.
type lagging struct {
	next  http.RoundTripper
	takes time.Duration
}

func (l lagging) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(l.takes):
		return l.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// Each answer takes 5 or 25 s, and there are more objects than requests allowed at a time, so that some wait for
// minutes. Even so, the provider gives up no request, asks for each object once, and does not report the server as
// away.
//
// Faults: A223.
func TestWhatWaitsForItsTurnIsNotGivenUp(t *testing.T) {
	for name, takes := range map[string]time.Duration{"5 s": 5 * time.Second, "25 s": 25 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const pods = 150
				var server *fakeapi.Server
				w, _ := startAs(t, func(s *fakeapi.Server) {
					server = s
					s.Fail(func(r fakeapi.Request) *fakeapi.Answer { // as the node authorizer does
						if r.Resource == "persistentvolumes" && r.Verb != "get" {
							return &fakeapi.Answer{Code: http.StatusForbidden}
						}
						return nil
					})
					putClaims(s, pods)
					for i := range pods {
						s.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("m", i)}},
							pod(fmt.Sprint("conf", i), corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("m", i)}}}))
					}
				}, func(c *kube.Config) {
					wrap := func(next http.RoundTripper) http.RoundTripper { return kube.Transport(lagging{next, takes}) }
					c.Core, c.Storage = server.LimitedClients(wrap, 50, 100)
					core, storage := server.LimitedClients(wrap, 50, 100)
					c.Bulk = &kubeclient.Clients{Core: core, Storage: storage}
				})
				for range 20 * 60 {
					advance(time.Second)
					if f := w.provider.Findings(); len(f) > 0 {
						t.Fatalf("it is a problem: %v", f)
					}
				}
				for i := range pods {
					w.expect(state.PodUID(fmt.Sprint("p", i)), "", "")
					w.expect(state.PodUID(fmt.Sprint("conf", i)), "", "")
				}
				count := counted(w.server.Took())
				if count["list configmaps"] != pods || count["get persistentvolumes"] != pods {
					t.Errorf("%d lists of configMaps and %d gets of volumes, want %d each", count["list configmaps"], count["get persistentvolumes"], pods)
				}
			})
		})
	}
}

// After ten minutes without a server, each request is told to retry after a second, as by a busy server that is back.
// The provider retries within two seconds, not after the pause that it had reached during the outage.
//
// Faults: A229.
func TestAServerThatIsBackAndBusyIsAskedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		w.server.Fail(away)
		w.server.EndWatches()
		advance(10 * time.Minute)
		var mu sync.Mutex
		refused, again := map[string]time.Time{}, map[string]time.Duration{}
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			mu.Lock()
			defer mu.Unlock()
			if at, was := refused[r.String()]; was {
				if _, known := again[r.String()]; !known {
					again[r.String()] = time.Since(at)
				}
				return nil
			}
			refused[r.String()] = time.Now()
			return &fakeapi.Answer{Code: http.StatusTooManyRequests, RetryAfter: "1"}
		})
		advance(3 * time.Minute)
		if len(again) < 8 {
			t.Errorf("asked again: %v", again)
		}
		for what, after := range again {
			if after < time.Second || after > 2*time.Second {
				t.Errorf("%s: asked again after %s", what, after)
			}
		}
		if f := w.provider.Findings(); len(f) > 0 {
			t.Errorf("problems: %v", f)
		}
	})
}
