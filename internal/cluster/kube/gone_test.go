package kube_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// everyKind puts pods that name an object of each kind that a node reads.
func everyKind(s *fakeapi.Server) {
	bundles := "plain"
	for _, v := range []string{"a", "b"} {
		claim(s, v)
		s.Put(claimPod("p-"+v, v), attached(v))
	}
	s.Put(
		driver(true), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{
			{Name: "kubernetes.io/csi/d.test^h-a"}, {Name: "kubernetes.io/csi/d.test^h-b"},
		}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Data: map[string][]byte{"k": []byte("1")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "1"}},
		bundle(bundles, "", root),
		pod("secretive", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}),
		pod("settled", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}),
		trusting("trusting", corev1.ClusterTrustBundleProjection{Name: &bundles}),
		pod("leaves", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}),
	)
}

// inTheGap changes an object of each kind. The node can learn of the changes from lists only.
func (w *world) inTheGap() {
	w.server.Delete("pods", "default/leaves")
	w.server.Put(claimPod("comes", "a"))
	var pv corev1.PersistentVolume
	w.server.Get("persistentvolumes", "pv-a", &pv)
	pv.Spec.Capacity["storage"] = resource.MustParse("2Gi")
	var grown corev1.PersistentVolumeClaim
	w.server.Get("persistentvolumeclaims", "default/a", &grown)
	grown.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	w.server.Put(
		&pv, &grown, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{
			{Name: "kubernetes.io/csi/d.test^h-a"},
		}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "2"}},
	)
	w.server.Delete("volumeattachments", attached("b").Name)
	w.server.Delete("secrets", "default/s")
	w.server.Delete("clustertrustbundles", "plain")
}

// counted counts requests by verb and resource.
func counted(took []string) map[string]int {
	count := map[string]int{}
	for _, r := range took {
		f := strings.Fields(r)
		count[f[0]+" "+f[1]]++
	}
	return count
}

// The server forgets the versions that the node's watches continue from, as after a compaction of etcd: it says 410,
// in an event of the watch or as the answer to a new one. The provider then lists once for each watch, and sees at
// once what changed in between, in every kind.
//
// Faults: A220.
func TestWhatChangedBeforeAForgottenVersionIsSeen(t *testing.T) {
	for name, expire := range map[string]func(*fakeapi.Server){
		"while it is watched":    (*fakeapi.Server).Expire,
		"as an event":            func(s *fakeapi.Server) { s.GoneInStream(); s.Compact(); s.EndWatches() },
		"as the watch's answer":  func(s *fakeapi.Server) { s.Compact(); s.EndWatches() },
		"of a server of an hour": func(s *fakeapi.Server) { advance(time.Hour); s.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, everyKind)
				for _, uid := range []state.PodUID{"p-a", "p-b", "secretive", "settled", "trusting"} {
					w.expect(uid, "", "")
				}
				before := w.volume("settled").Revision
				advance(time.Minute)
				w.server.Fail(away) // the node hears nothing meanwhile
				w.server.EndWatches()
				advance(time.Second)
				w.inTheGap()
				if len(w.gone) > 0 || len(w.pods) != 6 {
					t.Errorf("concluded from nothing: %q are gone, %d pods", w.gone, len(w.pods))
				}
				w.server.Fail(nil)
				expire(w.server)
				advance(2 * time.Minute)
				if !slices.Equal(w.gone, []state.PodUID{"leaves"}) {
					t.Errorf("gone: %q", w.gone)
				}
				w.expect("comes", "", "")
				w.expect("p-b", "", "waiting for VolumeAttachment")
				w.expect("secretive", "secret default/s: not found", "")
				w.expect("trusting", "not found", "")
				if v := w.volume("p-a"); v.SizeBytes != 2<<30 {
					t.Errorf("the claim has grown to %d", v.SizeBytes)
				}
				if w.volume("settled").Revision == before {
					t.Error("the configMap is the old one")
				}
				if f := w.provider.Findings(); len(f) > 0 {
					t.Errorf("problems: %v", f)
				}
			})
		})
	}
}

// A watch that gets 410 costs one list and one new watch, at once. No problem is reported: nothing has failed.
//
// Faults: A220.
func TestAForgottenVersionCostsAListEach(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"a watch that began with a list": time.Minute, "one that went on from a watch": 11 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, everyKind)
				advance(lasts)
				w.server.Took()
				heard := w.provider.Changed()
				w.server.Expire()
				advance(time.Millisecond)
				count := counted(w.server.Took())
				want := map[string]int{"get volumeattachments": 2} // read after the Node is listed
				for kind, n := range map[string]int{
					"pods": 1, "nodes": 1, "persistentvolumeclaims": 2, "csidrivers": 1, "secrets": 1, "configmaps": 1, "clustertrustbundles": 1,
				} {
					want["list "+kind], want["watch "+kind] = n, n
				}
				if !maps.Equal(count, want) {
					t.Errorf("asked %v, want %v", count, want)
				}
				select {
				case <-heard:
					t.Errorf("it was a problem: %v", w.provider.Findings())
				default:
				}
			})
		})
	}
}

// If a server answers or ends every watch with 410, the provider asks it less and less often: it never loops without
// a pause, and removes nothing.
//
// Faults: A220.
func TestAServerThatForgetsAllIsNotAskedWithoutAPause(t *testing.T) {
	bookmark := `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"2"}}}`
	ends := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}}`
	for name, answer := range map[string]fakeapi.Answer{
		"as the answer":         {Code: http.StatusGone},
		"as an event":           {Code: http.StatusOK, Body: ends},
		"after another event":   {Code: http.StatusOK, Body: bookmark + "\n" + ends},
		"an end without a word": {Code: http.StatusOK, Body: bookmark},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, everyKind)
				w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
					if r.Verb == "watch" {
						return &answer
					}
					return nil
				})
				w.server.EndWatches()
				w.server.Took()
				const streams = 8
				advance(10 * time.Minute)
				// After a few faster attempts, each list and watch waits half a minute to a minute for the next.
				if n := len(w.server.Took()); n > streams*(20+8)*2 {
					t.Errorf("%d requests in 10 minutes, %d for each of %d watches", n, n/streams, streams)
				}
				if len(w.gone) > 0 {
					t.Errorf("gone: %q", w.gone)
				}
			})
		})
	}
}

// An API server instance that lags behind answers lists. The provider does not take objects that it lacks for
// deleted, nor does it bring back deleted ones that it still has, and reports the lag. The report ends when the
// instance has caught up.
//
// Faults: A221.
func TestAnOlderListConcludesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		w.server.Behind(true)
		w.server.Put(claimPod("comes", "a"))
		w.server.Delete("pods", "default/leaves")
		w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "2"}})
		synctest.Wait()
		revision := w.volume("settled").Revision
		w.expect("comes", "", "")
		w.server.Compact()
		w.server.EndWatches()
		advance(10 * time.Minute)
		if !slices.Equal(w.gone, []state.PodUID{"leaves"}) || len(w.pods) != 6 || w.volume("settled").Revision != revision {
			t.Errorf("gone: %q; %d pods", w.gone, len(w.pods))
		}
		away, _ := outage.Fold(w.provider.Findings())
		if away == nil || away.Cause != outage.Behind || !strings.Contains(away.Text("https://api.test"), "lags behind") {
			t.Errorf("problems: %v", w.provider.Findings())
		}
		if n := len(w.asked()); n > 8*(20+8) {
			t.Errorf("%d lists and gets in 10 minutes", n)
		}
		w.server.Behind(false)
		advance(2 * time.Minute)
		if f := w.provider.Findings(); len(f) > 0 || !slices.Equal(w.gone, []state.PodUID{"leaves"}) || len(w.pods) != 6 {
			t.Errorf("once it has caught up: gone %q, problems %v", w.gone, f)
		}
	})
}

// The provider does not believe a get that returns an older version of the object either.
//
// Faults: A221.
func TestAnOlderObjectIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pv := func(size string) *corev1.PersistentVolume {
			return &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv-a", UID: "u"},
				Spec: corev1.PersistentVolumeSpec{
					Capacity:               corev1.ResourceList{"storage": resource.MustParse(size)},
					ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "a", UID: "a"},
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.test", VolumeHandle: "h-a"}},
				},
			}
		}
		w := start(t, func(s *fakeapi.Server) { claim(s, "a"); s.Put(claimPod("p", "a"), pv("1Gi")) })
		grow := func() {
			var c corev1.PersistentVolumeClaim
			w.server.Get("persistentvolumeclaims", "default/a", &c)
			w.server.Put(&c) // makes the provider read the volume again
			advance(time.Second)
		}
		w.server.Behind(true)
		w.server.Put(pv("2Gi"))
		w.server.Behind(false)
		grow()
		if got := w.volume("p").SizeBytes; got != 2<<30 {
			t.Fatalf("the volume has %d bytes", got)
		}
		old := fmt.Sprintf(`{"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"pv-a","uid":"u","resourceVersion":"1"},"spec":{"capacity":{"storage":"1Gi"},`+
			`"claimRef":{"namespace":"default","name":"a","uid":"a"},"csi":{"driver":"d.test","volumeHandle":%q}}}`, "h-a")
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "get" && r.Resource == "persistentvolumes" {
				return &fakeapi.Answer{Code: http.StatusOK, Body: old}
			}
			return nil
		})
		grow()
		if got := w.volume("p").SizeBytes; got != 2<<30 {
			t.Errorf("the volume shrank to %d bytes by an older answer", got)
		}
	})
}

// If a get returns 410, the provider changes nothing and repeats it. It gets volumes and attachments, and claims that
// it may not watch. After a list of the Node it does not know whether an attachment is still the same one.
//
// Faults: A220.
func TestAGetThatIsGoneIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var expired atomic.Bool
		w, _ := startAs(t, func(s *fakeapi.Server) {
			s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
				switch {
				case r.Resource == "persistentvolumeclaims" && r.Verb != "get":
					return &fakeapi.Answer{Code: http.StatusForbidden}
				case r.Verb == "get" && expired.Load():
					return &fakeapi.Answer{Code: http.StatusGone}
				}
				return nil
			})
			everyKind(s)
		}, func(*kube.Config) {})
		w.expect("p-a", "", "")
		expired.Store(true)
		w.server.Took()
		w.server.Expire()
		advance(10 * time.Minute)
		w.expect("p-a", "", "not read: the API server failed (410 Expired)")
		if n := counted(w.asked())["get persistentvolumeclaims"]; n > 2*(20+8) {
			t.Errorf("%d gets of two claims in 10 minutes", n)
		}
		expired.Store(false)
		advance(2 * time.Minute)
		w.expect("p-a", "", "")
		if f := w.provider.Findings(); len(f) > 0 {
			t.Errorf("problems: %v", f)
		}
	})
}
