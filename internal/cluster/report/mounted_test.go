package report_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// If a mounted volume is missing from the list, a controller may detach it at any moment. The reporter writes it again
// at once, also the hundredth time, unless it wrote less than 200 ms ago; other changes still wait for a second.
//
// Faults: A181.
func TestAMountedVolumeIsWrittenAgainAtOnce(t *testing.T) {
	for name, every := range map[string]time.Duration{
		"every 10 s": 10 * time.Second, "every second": time.Second, "every 300 ms": 300 * time.Millisecond, "every 20 ms": 20 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := using(t, "d^a", "d^b")
				w.mu.Lock()
				w.mounted = true
				w.mu.Unlock()
				missing, written := time.Duration(0), 0
				for range 200 {
					w.change(func(s *corev1.NodeStatus) { s.VolumesInUse = nil })
					w.seeNode()
					for range 20 {
						if w.inUse() == "" {
							missing += every / 20
						}
						time.Sleep(every / 20)
						synctest.Wait()
					}
					if w.inUse() != "" {
						written++
					}
				}
				if every > 200*time.Millisecond && (missing > 0 || written != 200) {
					t.Errorf("the list was wrong for %v of %v, and written again %d times of 200", missing, 200*every, written)
				}
				if most := int(200*every/(100*time.Millisecond)) + 5; every < 200*time.Millisecond && (written > most || written < most/4) {
					t.Errorf("written again %d times in %v, want at most %d", written, 200*every, most)
				}
			})
		})
	}
}

// A write that only removes waits for its second; a mounted volume that goes missing meanwhile does not wait with it.
func TestAMountedVolumeDoesNotWaitForTheRemovalOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		w.mu.Lock()
		w.mounted = true
		w.mu.Unlock()
		replace := func(ids ...string) {
			w.change(func(s *corev1.NodeStatus) {
				s.VolumesInUse = nil
				for _, id := range ids {
					s.VolumesInUse = append(s.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/"+id))
				}
			})
			w.seeNode()
		}
		for range 5 {
			replace()
			time.Sleep(250 * time.Millisecond)
		}
		w.want("after five replacements", "d^a", "d^a")
		replace("d^a", "d^foreign")
		w.want("a foreign one more", "d^a d^foreign", "d^a")
		time.Sleep(250 * time.Millisecond)
		replace("d^foreign")
		w.want("the mounted one is missing", "d^a", "d^a")
	})
}

// The log, the event and the problem name the program that the Node's managedFields name.
func TestTheOtherWriterIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		n := w.seeNode()
		at := metav1.Now()
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^x"}
		n.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kcm", Subresource: "status", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:volumesAttached":{}}}`)},
			{Manager: "other-agent", Subresource: "status", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:volumesInUse":{}}}`)},
			{Manager: "torn", Time: &at, FieldsV1: metav1.NewFieldsV1(`[]`)},
			{Manager: "empty"},
		}
		w.server.Put(n)
		w.seeNode()
		named := "another program (other-agent in managedFields) replaced status.volumesInUse of Node n1"
		if !slices.ContainsFunc(w.reporter.Findings(), func(p outage.Finding) bool { return strings.Contains(p.Text, named) }) {
			t.Errorf("problems: %v", w.reporter.Findings())
		}
		if e := w.events(); len(e) != 1 || !strings.Contains(e[0].Message, named) {
			t.Errorf("events: %v", e)
		}
	})
}

// A volume is detached by force while it is mounted: a problem and one event say so once it has lasted, and the problem
// ends when the volume is attached again or unmounted. What is only wanted, or listed again soon, is no problem.
//
// Faults: A182.
func TestAMountedVolumeThatIsDetachedByForceIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a", "d^b")
		shown := func(when, names string) {
			t.Helper()
			synctest.Wait()
			got := ""
			for _, p := range w.reporter.Findings() {
				if p.What == "status.volumesAttached" {
					got = p.Text
				}
			}
			if (got == "") != (names == "") || !strings.Contains(got, names) {
				t.Errorf("%s: %q, want %q", when, got, names)
			}
		}
		list := func(ids ...string) { w.change(attached(ids...)); w.seeNode() }
		list("d^a")
		time.Sleep(time.Hour)
		shown("not mounted", "")
		list("d^a", "d^b")
		w.mu.Lock()
		w.mounted = true
		w.mu.Unlock()
		list("d^a")
		time.Sleep(9 * time.Second)
		shown("for a moment", "")
		list("d^a", "d^b")
		time.Sleep(time.Minute)
		shown("listed again", "")
		list("d^a")
		time.Sleep(10 * time.Second)
		shown("detached", "list them: kubernetes.io/csi/d^b. A controller")
		list()
		time.Sleep(time.Hour)
		shown("both", "list them: kubernetes.io/csi/d^a, kubernetes.io/csi/d^b. A controller")
		if e := w.events(); len(e) != 2 || e[0].Reason != "MountedNotAttached" || e[0].InvolvedObject.Kind != "Node" {
			t.Errorf("events: %v", e)
		}
		w.use("d^a")
		shown("one is unmounted", "list them: kubernetes.io/csi/d^a. A controller")
		list("d^a")
		shown("attached again", "")
	})
}
