package wire

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
)

// TestBuiltinKindsAreAsked: mounted kinds by statfs, an emptyDir by its content. The other kinds mount nothing and
// have no figures of their own.
func TestBuiltinKindsAreAsked(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, filesPod+filesObjects)
	apply(t, n, strings.Replace(scratchPod, "name: web}\n", "name: scratch}\n", 1))
	for _, pod := range []string{"web", "scratch"} {
		if err := n.Manager().WaitForAttachAndMount(within(t), uidOf(t, n, pod)); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	for s := range newAsker(n.builtins, n.manager, n.Drivers, n.controller, n.mounts).Subjects {
		if strings.Contains(s.Key, "configmap") || s.Watched || s.Mortal {
			t.Errorf("%+v is asked, or watched", s)
		}
	}
	for s, q := range questions(n) {
		asked++
		source := "statfs"
		if strings.Contains(s.Key, "empty-dir") {
			source = "fs"
		}
		r, err := q.Ask(t.Context())
		if err != nil || r.Bytes.Total <= 0 || r.Inodes.Total <= 0 || q.Source != source || r.Diagnosed {
			t.Errorf("%s: %+v, %v", s.Key, r, err)
		}
	}
	if asked == 0 {
		t.Error("the driver is not asked")
	}
}

// questions returns the questions that can be asked now.
func questions(n *Node) map[stats.Subject]stats.Question {
	all := map[stats.Subject]stats.Question{}
	for _, s := range slices.Collect(newAsker(n.builtins, n.manager, n.Drivers, n.controller, n.mounts).Subjects) { // collected first: a question locks the snapshot again
		if q, ok := newAsker(n.builtins, n.manager, n.Drivers, n.controller, n.mounts).Question(s); ok {
			all[s] = q
		}
	}
	return all
}

const ephemeralPod = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: directory}
provisioner: local.csi-volmgr.dev
parameters: {type: directory}
---
apiVersion: v1
kind: Pod
metadata: {name: web, uid: web-uid}
spec:
  containers: [{name: web, volumeMounts: [{name: own, mountPath: /own}]}]
  volumes: [{name: own, ephemeral: {volumeClaimTemplate: {spec: {}}}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: web-own
  ownerReferences: [{apiVersion: v1, kind: Pod, name: web, uid: web-uid, controller: true}]
spec: {storageClassName: directory, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// The metrics name a claim that is made for a pod like any other.
//
// Items: O10.
func TestAnEphemeralClaimIsNamed(t *testing.T) {
	c := dirs(t)
	c.LocalDriver = true
	n, _ := start(t, c)
	apply(t, n, ephemeralPod)
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Fatal(err)
	}
	ask := time.NewTicker(time.Millisecond)
	defer ask.Stop()
	ctx := within(t)
	for s := n.Stats(ctx); len(s) == 0 || s[0].At.IsZero(); s = n.Stats(ctx) {
		select {
		case <-ask.C:
		case <-ctx.Done():
			t.Fatalf("no driver says: %+v", s)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(n.Collector)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubelet_volume_stats_capacity_bytes" {
			if got := f.GetMetric()[0].String(); len(f.GetMetric()) != 1 || !strings.Contains(got, "web-own") || !strings.Contains(got, "default") {
				t.Errorf("got %s", got)
			}
			return
		}
	}
	t.Errorf("no series among %d", len(families))
}
