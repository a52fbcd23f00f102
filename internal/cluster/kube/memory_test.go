package kube_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// away is a server that no client can reach.
func away(fakeapi.Request) *fakeapi.Answer {
	return &fakeapi.Answer{Err: errors.New("no route to host")}
}

// remembers makes the provider keep its knowledge in a journal.
func remembers(kv kube.KV) func(*kube.Config) {
	return func(c *kube.Config) { c.KV = kv }
}

// A daemon that starts without its API server uses the pods and objects that it remembers, says so, and removes
// nothing; the source has not synced. When the server is back, the daemon learns what changed, and only then removes
// what was deleted.
func TestAStartWithoutTheServerKnowsTheLastWishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := journal.NewMemory()
		objects := func(s *fakeapi.Server) {
			claim(s, "a")
			claim(s, "b")
			s.Put(claimPod("p", "a"), claimPod("q", "b"))
		}
		w, stop := startAs(t, objects, remembers(kv))
		w.expect("p", "", "")
		before := w.volume("p")
		advance(time.Minute)
		stop()
		w, stop = startAs(t, func(s *fakeapi.Server) { s.Fail(away) }, remembers(kv))
		w.expect("p", "", "")
		w.expect("q", "", "")
		if after := w.volume("p"); !after.Spec.Equal(&before.Spec) || !after.Mount.Equal(before.Mount) || !after.Spec.NoAttach {
			t.Errorf("wanted before %+v, now %+v", before, after)
		}
		advance(time.Hour)
		if w.synced || len(w.gone) > 0 {
			t.Errorf("the source has spoken: %v, and %q are gone", w.synced, w.gone)
		}
		if p := fmt.Sprint(w.provider.Findings()); !strings.Contains(p, "its 2 pods, and their claims, volumes and drivers, are the last known ones") {
			t.Errorf("problems: %s", p)
		}
		claim(w.server, "a")
		w.server.Put(claimPod("p", "a"))
		w.server.Fail(nil)
		advance(10 * time.Minute)
		w.expect("p", "", "")
		if !w.synced || !slices.Equal(w.gone, []state.PodUID{"q"}) || len(w.provider.Findings()) > 0 {
			t.Errorf("after it was back: spoken %v, gone %q, problems %v", w.synced, w.gone, w.provider.Findings())
		}
		stop()
		w, _ = startAs(t, func(s *fakeapi.Server) { s.Fail(away) }, remembers(kv))
		if len(w.pods) != 1 || len(w.catalog.Claims()) != 1 || len(w.catalog.Volumes()) != 1 {
			t.Errorf("remembered: pods %v, %d claims, %d volumes", w.pods, len(w.catalog.Claims()), len(w.catalog.Volumes()))
		}
	})
}

// The provider does not remember whether a volume is attached, since another node may have it now. It waits for the
// attachment.
//
// Faults: A037.
func TestAnAttachmentIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := journal.NewMemory()
		w, stop := startAs(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(driver(true), claimPod("p", "a"), attached("a"), attaching("a"))
		}, remembers(kv))
		w.expect("p", "", "")
		stop()
		w, _ = startAs(t, func(s *fakeapi.Server) { s.Fail(away) }, remembers(kv))
		w.expect("p", "", "waiting for VolumeAttachment")
		advance(time.Hour)
		w.expect("p", "", "waiting for VolumeAttachment")
	})
}

// The Node's labels decide where a volume may be: the current labels, or the last known ones without the API server.
//
// Items: A30.
func TestTheNodesLabelsDecideWhereAVolumeMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := journal.NewMemory()
		node := func(zone string) *corev1.Node {
			return &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": zone}},
				Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("6Gi")}},
			}
		}
		allocatable := func(w *world) {
			t.Helper()
			n, _ := w.catalog.Get(source.Key{Kind: resolve.KindNode, Name: "n1"}).(*resolve.Node)
			if n == nil || n.Allocatable.Memory().String() != "6Gi" {
				t.Errorf("the Node is known as %+v, want its allocatable memory", n)
			}
		}
		w, stop := startAs(t, func(s *fakeapi.Server) {
			claim(s, "a")
			pv := &corev1.PersistentVolume{}
			s.Get("persistentvolumes", "pv-a", pv)
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}},
			}}}}
			s.Put(pv, claimPod("p", "a"), node("b"))
		}, remembers(kv))
		w.expect("p", "the Node has b", "")
		w.server.Put(node("a"))
		advance(time.Minute)
		w.expect("p", "", "")
		allocatable(w)
		stop()
		w, _ = startAs(t, func(s *fakeapi.Server) { s.Fail(away) }, remembers(kv))
		w.expect("p", "", "")
		allocatable(w)
	})
}

// A claim that was deleted and recreated meanwhile is a new one: the pod does not get the volume of the remembered
// claim.
func TestAnotherObjectOfARememberedNameIsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := journal.NewMemory()
		_, stop := startAs(t, func(s *fakeapi.Server) { claim(s, "a"); s.Put(claimPod("p", "a")) }, remembers(kv))
		stop()
		w, _ := startAs(t, func(s *fakeapi.Server) {
			claim(s, "a")
			s.Put(claimPod("p", "a"), &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "another"},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-a"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			})
		}, remembers(kv))
		w.expect("p", "uid", "")
	})
}

// The disk holds no secret: no Secret, configMap, environment or command line, nor a field that repeats one. Nor does
// it hold an object that the next start could not read.
func TestWhatIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const canary = "hush-4711"
		kv := journal.NewMemory()
		p := pod("p", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})
		p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: canary, "kept": "yes"}
		c := &p.Spec.Containers[0]
		c.Command, c.Args, c.VolumeMounts[0].SubPathExpr = []string{canary}, []string{canary}, "$(DIR)"
		c.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: canary}, {Name: "DIR", Value: "d"}}
		p.Spec.InitContainers, p.Spec.EphemeralContainers = []corev1.Container{*c.DeepCopy()}, []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(*c.DeepCopy())}}
		_, stop := startAs(t, func(s *fakeapi.Server) {
			s.Put(p, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", UID: types.UID("s")}, Data: map[string][]byte{"k": []byte(canary)}})
		}, remembers(kv))
		stop()
		kept, err := kv.LoadBucket(t.Context(), "kube")
		if err != nil || len(kept.Sound) != 1 {
			t.Fatalf("kept %d objects, %v; want the pod", len(kept.Sound), err)
		}
		text := string(kept.Sound["Pod/default/p"])
		if strings.Contains(text, canary) || strings.Count(text, `"name":"DIR"`) != 3 || !strings.Contains(text, `"kept":"yes"`) {
			t.Errorf("kept %s", text)
		}
		if err := kv.CommitBucket(t.Context(), "kube", map[string][]byte{"Pod/default/x": []byte("{"), "Foo/a/b": []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		w, stop := startAs(t, func(s *fakeapi.Server) { s.Fail(away) }, remembers(kv))
		if len(w.pods) != 1 {
			t.Errorf("remembered %v", w.pods)
		}
		w.server.Fail(nil)
		advance(10 * time.Minute)
		stop()
		if kept, err := kv.LoadBucket(t.Context(), "kube"); err != nil || len(kept.Sound) != 0 {
			t.Errorf("kept of what is gone: %v, %v", kept, err)
		}
	})
}

// After a restart many pods, each with its own secret and configMap, wait until the provider has read those.
// Meanwhile no pod is told that they do not exist, as a kubelet does (kubernetes/kubernetes#140037).
func TestManyPodsWithObjectsOfTheirOwnOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 150
		kv := journal.NewMemory()
		objects := func(s *fakeapi.Server) {
			for i := range pods {
				name := fmt.Sprintf("p-%03d", i)
				meta := metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
				ref := corev1.LocalObjectReference{Name: name}
				s.Put(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"k": []byte("v")}},
					&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"c": "v"}},
					pod(name, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{Secret: &corev1.SecretProjection{LocalObjectReference: ref}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref}},
					}}}))
			}
		}
		for start := range 3 {
			w, stop := startAs(t, objects, remembers(kv))
			advance(time.Minute)
			if len(w.pods) != pods {
				t.Fatalf("start %d: %d pods", start, len(w.pods))
			}
			for uid := range w.pods {
				w.expect(uid, "", "")
			}
			if len(w.missing) > 0 {
				t.Errorf("start %d: %d times a pod heard that an object is not there, first %s", start, len(w.missing), w.missing[0])
			}
			stop()
		}
	})
}
