//go:build cluster

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What churn may cost (docs/scale.md): requests for a pod. Every fourth pod has its own
// claim, and all pods use one secret and one configMap.
const (
	churnPods    = 200
	churnAtOnce  = 40
	churnRequest = 6 // for a pod, without watches
)

// 200 pods come and go on one node, 40 at a time, while another node is idle. Each pod gets
// its volumes, nothing is left, and the requests stay within docs/scale.md, those of the idle
// node too.
//
// Items: A10.
func TestChurn(t *testing.T) {
	t.Parallel()
	ctx, core, yes := t.Context(), control.client.CoreV1(), true
	a := newArray(t, "churn.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	_, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "churn"}, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "churn"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	must(t, err)
	idle := asNode(t, "churn-idle")
	a.serve(idle)
	a.volume("idle")
	createPod(t, podWith(idle.name, "idle", fromClaim("idle")))
	idle.mounted("idle")
	quiet := len(requests(t, "system:node:churn-idle"))
	n := asNode(t, "churn")
	a.serve(n)
	for i := range churnPods + churnAtOnce {
		if i < churnPods {
			a.churn(n, i)
		}
		if done := i - churnAtOnce; done >= 0 {
			n.mounted(fmt.Sprintf("churn-%d", done))
			deletePod(t, fmt.Sprintf("churn-%d", done))
		}
	}
	n.eventually("nothing is left", func() bool {
		v, err := n.api.Volumes(ctx)
		return err == nil && len(v) == 0 && len(n.mounts()) == 0 && len(n.inUse()) == 0
	})
	count, sum := map[string]int{}, 0
	for _, r := range requests(t, "system:node:churn") {
		count[r.Verb+" "+r.resource()]++
		if r.Verb != "watch" {
			sum++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%d pods, %d of them with a claim: %d %s", churnPods, churnPods/4, count[what], what)
	}
	if sum > churnPods*churnRequest {
		t.Errorf("%d requests, want at most %d", sum, churnPods*churnRequest)
	}
	all, asked, looked := requests(t, "system:node:churn-idle"), 0, time.Time{}
	for _, r := range all[quiet:] {
		// The node may not watch claims, so it reads a claim and its volume every 90
		// seconds. It reads the attachment when the Node says, late, that the volume is
		// attached. It writes events when it has time. Every half minute it looks whether
		// the Node was put back with etcd.
		switch what := r.resource(); {
		case r.Verb == "watch", slices.Contains([]string{"persistentvolumeclaims", "persistentvolumes", "events"}, what):
		case what == "volumeattachments" && asked == 0:
			asked++
		case r.Verb == "list" && what == "nodes" && r.Received.Sub(looked) >= 30*time.Second:
			looked = r.Received
		default:
			t.Errorf("the idle node asked: %s %s", r.Verb, r.RequestURI)
		}
	}
	budget(t, append(all, requests(t, "system:node:churn")...), nil)
	idle.gone("idle")
}

// churn makes one of the pods.
func (a *array) churn(n *node, i int) {
	a.t.Helper()
	volumes := []corev1.Volume{
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "churn"}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "churn"}}}},
	}
	name := fmt.Sprintf("churn-%d", i)
	if i%4 == 0 {
		a.volume(name)
		volumes = append(volumes, fromClaim(name))
	}
	p := podWith("", name, volumes...)
	p.Spec.NodeName = n.name // bypasses the scheduler, whose speed is not measured
	createPod(a.t, p)
}
