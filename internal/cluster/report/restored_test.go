package report_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
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

// putBack puts the Node back as it was given, after twenty writes of others: its versions begin again below those that
// the watch and the answers showed.
func (d *daemon) putBack(n *corev1.Node) {
	for range 20 {
		d.change(func(s *corev1.NodeStatus) { s.Phase = corev1.NodePhase(fmt.Sprint(len(s.Phase))) })
	}
	d.seeNode()
	n.ResourceVersion = ""
	d.server.PutBack(n)
}

// A Node that is put back to before the daemon was ready has the taint again, which keeps pods away; one that is put back
// to before the daemon claimed its name would let another daemon have it. Both are corrected within a minute, and an orderly stop
// writes the taint, whatever the versions were.
func TestWhatIsOnANodeThatWasPutBackIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(tainted())
		d := daemonWith(t, s, instance("a", "boot"), func(c *report.Config) { c.Alive = report.Alive{Taint: true} })
		d.use("v1")
		watch(3*time.Second, d)
		before := d.annotations()
		if _, taint := d.shown(); taint || len(before) == 0 {
			t.Fatalf("ready: taint %v, annotations %v", taint, before)
		}
		n := tainted()
		n.UID = d.uid()
		d.putBack(n)
		watch(time.Minute, d)
		if _, taint := d.shown(); taint {
			t.Error("the taint is still on the Node")
		}
		const holder = "csi-volmgr.dev/holder"
		if got := d.annotations(); got[holder] != before[holder] {
			t.Errorf("annotations %v, want the holder of %v", got, before)
		}
		if holds, why := d.stands(); !holds || why != "" {
			t.Errorf("the daemon has its name: %v, %q", holds, why)
		}
		n = tainted()
		n.UID, n.Spec.Taints, n.Annotations = d.uid(), nil, d.annotations()
		d.putBack(n)
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		if _, taint := d.shown(); !taint {
			t.Error("stopped, and the Node has no taint")
		}
	})
}

// uid and annotations are those of the Node that the server has.
func (d *daemon) uid() types.UID {
	n := &corev1.Node{}
	d.server.Get("nodes", "n1", n)
	return n.UID
}

func (d *daemon) annotations() map[string]string {
	n := &corev1.Node{}
	d.server.Get("nodes", "n1", n)
	return n.Annotations
}

// A pod that is put back to before its volume was said to be broken is told again.
func TestTheHealthOfAPodThatWasPutBackIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		broken := map[string][]corev1.VolumeHealthCondition{"data": {{Status: "Degraded", Reason: "R", Message: "m"}}}
		w.say(w.pod(), broken)
		for range 20 {
			w.change(func(s *corev1.NodeStatus) { s.Phase = corev1.NodePhase(fmt.Sprint(len(s.Phase))) })
		}
		w.say(w.pod(), nil) // an answer of a high version
		w.say(w.pod(), broken)
		if got := w.pod().Status.VolumeHealth; len(got) != 1 {
			t.Fatalf("the pod has %v", got)
		}
		p := w.pod()
		p.Status.VolumeHealth, p.ResourceVersion = nil, ""
		w.server.PutBack(p)
		w.say(w.pod(), broken)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.say(w.pod(), broken)
		if got := w.pod().Status.VolumeHealth; len(got) != 1 {
			t.Errorf("the pod has %v", got)
		}
	})
}
