package report_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ours is the entry of managedFields that the API server makes of csi-volmgr's write of the list.
func ours(at time.Time) metav1.ManagedFieldsEntry {
	when := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{
		Manager: "csi-volmgr", Operation: metav1.ManagedFieldsOperationUpdate, Time: &when, Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:volumesInUse":{}}}`),
	}
}

// etcd is put back to an earlier copy: the Node has an earlier list, and versions begin again below those that the
// watch and the answers showed. No event says so. The reporter finds out, writes its list again, and blames no other
// program, also when the watch goes on to show the Node of before.
func TestANodeThatWasPutBackIsCorrectedWithoutAnEvent(t *testing.T) {
	for name, restore := range map[string]func(n *corev1.Node){
		"a copy of this process's time": func(n *corev1.Node) { n.ManagedFields = []metav1.ManagedFieldsEntry{ours(time.Now())} },
		"a copy from before it":         func(n *corev1.Node) { n.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := using(t, "d^a", "d^b")
				w.want("before", "d^a d^b", "d^a", "d^b")
				for range 20 { // as other writers of the Node do
					w.change(func(s *corev1.NodeStatus) { s.Phase = corev1.NodePhase(fmt.Sprint(len(s.Phase))) })
				}
				w.seeNode()
				n := &corev1.Node{}
				w.server.Get("nodes", "n1", n)
				restore(n)
				n.Status.VolumesInUse = n.Status.VolumesInUse[:1]
				w.server.PutBack(n)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := w.inUse(); got != "d^a d^b" {
					t.Errorf("the server has %q in use", got)
				}
				w.use("d^a", "d^b", "d^c")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if got := w.inUse(); got != "d^a d^b d^c" {
					t.Errorf("with a new volume: the server has %q in use", got)
				}
				for _, f := range w.reporter.Findings() {
					if strings.Contains(f.Text, "another program") {
						t.Errorf("blamed: %s", f.Text)
					}
				}
				if e := w.events(); len(e) > 0 {
					t.Errorf("events: %v", e)
				}
			})
		})
	}
}

// Another program that really replaces the list is named, also if no event shows that: the list is wrong for a minute
// at most.
func TestAReplacementWithoutAnEventIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		w.change(func(s *corev1.NodeStatus) { s.VolumesInUse = nil }) // the watch stays silent
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.inUse(); got != "d^a" {
			t.Errorf("the server has %q in use", got)
		}
		if e := w.events(); len(e) != 1 || e[0].Reason != "VolumesInUseOverwritten" {
			t.Errorf("events: %v", e)
		}
	})
}
