package wire

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// inMemory returns a configuration for an API server in memory.
func inMemory(s *fakeapi.Server) *rest.Config {
	return &rest.Config{Host: "http://api.test", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// clustered starts a node of a cluster whose API server is in memory.
func clustered(t *testing.T, s *fakeapi.Server) *Node {
	t.Helper()
	c := dirs(t)
	c.Cluster = inMemory(s)
	n, _ := start(t, c)
	return n
}

// shows waits until ok accepts the node's problems, including those of its pods.
func shows(t *testing.T, n *Node, what string, ok func([]server.Problem) bool) {
	t.Helper()
	var all []server.Problem
	for {
		views, volumes := n.Views().Changed(), n.manager.Changed()
		f := server.Facts{Pods: n.manager.Pods(), Volumes: n.manager.Volumes(), Problems: n.Views().Problems(), Now: time.Now()}
		if all = append(f.Problems, f.StuckProblems()...); ok(all) {
			return
		}
		select {
		case <-views:
		case <-volumes:
		case <-time.After(50 * time.Millisecond): // a failed write sends no event
		case <-t.Context().Done():
			t.Fatalf("%s: %+v", what, all)
		}
	}
}

// While the API server is away there is one problem, whatever waits for the server. It shows the cause and the start,
// and ends with the outage. Readiness says the same.
//
// Faults: A175.
func TestAnOutageIsOneProblem(t *testing.T) {
	s := fakeapi.New()
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	for i := range 5 {
		name := fmt.Sprint("p", i)
		s.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{
				NodeName: "n1", Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: name},
				}}}},
			},
		})
	}
	s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
		if r.Resource == "pods" || r.Resource == "nodes" {
			return nil
		}
		return &fakeapi.Answer{Code: http.StatusUnauthorized}
	})
	n := clustered(t, s)
	var since time.Time
	only := func(cause string, waits int) func([]server.Problem) bool {
		return func(all []server.Problem) bool {
			one := len(all) == 1 && all[0].Code == server.APIServerAway && len(all[0].Consequences) >= waits && strings.Contains(all[0].Message, cause)
			if one {
				since = all[0].Since
			}
			return one && len(n.manager.Pods()) == 5
		}
	}
	shows(t, n, "requests are refused", only("(401)", 5))
	began := since
	if e, err := server.Explain(server.Facts{Pods: n.manager.Pods(), Problems: n.Views().Problems(), Now: time.Now()}, "pod", "default/p0"); err != nil ||
		e.Verdict != server.Waiting || !strings.Contains(e.String(), "wait until the API server answers") {
		t.Errorf("%v, %v", e, err)
	}
	s.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Err: syscall.ECONNREFUSED} })
	s.EndWatches()
	shows(t, n, "the server is away", only("new pods, claims", 7))
	if !since.Equal(began) {
		t.Errorf("since %v, which began at %v", since, began)
	}
	if d := n.Views().Degraded(); len(d) != 1 || !strings.Contains(d[0], "cannot be reached") {
		t.Errorf("degraded: %q", d)
	}
	if n.cluster.AwaySince() != began {
		t.Errorf("measured since %v", n.cluster.AwaySince())
	}
	s.Fail(nil)
	shows(t, n, "the server is back", func(all []server.Problem) bool {
		for _, p := range all {
			if p.Code != "" {
				return false
			}
		}
		return len(n.Views().Degraded()) == 0
	})
}

// Before the first answer of the server, readiness says why the node is not ready.
//
// Faults: A175.
func TestNotReadySaysThatTheServerIsAway(t *testing.T) {
	s := fakeapi.New()
	s.Fail(func(fakeapi.Request) *fakeapi.Answer {
		return &fakeapi.Answer{Code: http.StatusTooManyRequests, RetryAfter: "1"}
	})
	n := clustered(t, s)
	shows(t, n, "the server is overloaded", func([]server.Problem) bool {
		not := n.Views().NotReady()
		return len(not) == 1 && strings.Contains(not[0], "source kube has not spoken yet: the API server is overloaded (429)")
	})
}

// If the node may not read its Node, it shows a problem, and a new instance does not wait.
//
// Faults: A178.
func TestWithoutTheRightToReadTheNode(t *testing.T) {
	s := fakeapi.New()
	s.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	})
	s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
		if r.Resource == "nodes" {
			return &fakeapi.Answer{Code: http.StatusForbidden}
		}
		return nil
	})
	n := clustered(t, s)
	shows(t, n, "the refusal", func(all []server.Problem) bool {
		pods := n.manager.Pods()
		return len(all) == 1 && strings.Contains(all[0].Message, "(403)") && len(pods) == 1 && pods[0].Ready
	})
}
