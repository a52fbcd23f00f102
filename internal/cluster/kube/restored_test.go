package kube_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// etcd is put back to an earlier copy: versions begin again below those that were seen, and go on from there. The
// provider waits, as for an instance that lags behind, and says so; then it follows the server: pods, objects that are
// watched and objects that are read.
func TestARestoredServerIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		for i := range 200 {
			w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprint("c", i)}})
		}
		advance(time.Second)
		w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "2"}})
		advance(time.Second)
		revision := w.volume("settled").Revision

		var pv corev1.PersistentVolume
		w.server.Get("persistentvolumes", "pv-a", &pv)
		pv.Spec.Capacity, pv.ResourceVersion = corev1.ResourceList{"storage": resource.MustParse("3Gi")}, ""
		w.server.Restored()
		w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "0"}})
		w.server.Put(&pv)
		w.server.Delete("pods", "default/leaves")
		advance(time.Minute)
		if got := w.volume("settled").Revision; got != revision || len(w.gone) > 0 {
			t.Errorf("after a minute, as of an instance that lags behind: gone %q, revision %q, want %q", w.gone, got, revision)
		}
		if len(w.provider.Findings()) == 0 {
			t.Error("no problem says that the server has an older state")
		}
		for range 10 { // the cluster goes on
			w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "lease"}})
			advance(time.Minute)
		}
		if got := w.volume("settled").Revision; got == revision {
			t.Errorf("the configMap is not followed: revision %q", got)
		}
		if got := w.volume("p-a").SizeBytes; got != 3<<30 {
			t.Errorf("the volume has %d bytes, want those of the copy", got)
		}
		if !slices.Equal(w.gone, []state.PodUID{"leaves"}) {
			t.Errorf("gone: %q", w.gone)
		}
		if f := w.provider.Findings(); len(f) > 0 {
			t.Errorf("problems: %v", f)
		}
		w.server.Put(claimPod("comes", "a"))
		advance(time.Second)
		w.expect("comes", "", "")
	})
}

// A watch that goes on across a restore shows an object of a lower version than before: its events are in the server's
// order, so it is the object.
func TestAWatchThatGoesOnAcrossARestoreIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, everyKind)
		put := func(value string) (revision string) {
			w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": value}})
			advance(time.Second)
			return w.volume("settled").Revision
		}
		first := put("1")
		for i := range 200 {
			w.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprint("c", i)}})
		}
		second := put("2")
		w.server.PutBack(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "1"}})
		advance(time.Second)
		if got := w.volume("settled").Revision; first == second || got != first {
			t.Errorf("revision %q, want %q (and not %q)", got, first, second)
		}
	})
}
