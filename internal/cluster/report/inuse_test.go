package report_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// inUse returns status.volumesInUse of the Node on the server.
func (w *world) inUse() string {
	n := &corev1.Node{}
	w.server.Get("nodes", "n1", n)
	var out []string
	for _, v := range n.Status.VolumesInUse {
		out = append(out, strings.TrimPrefix(string(v), "kubernetes.io/csi/"))
	}
	return strings.Join(out, " ")
}

// change changes the Node as another writer does; the reporter does not see it yet.
func (w *world) change(change func(*corev1.NodeStatus)) {
	n := &corev1.Node{}
	if !w.server.Get("nodes", "n1", n) {
		w.t.Fatal("no node")
	}
	change(&n.Status)
	w.server.Put(n)
}

// attached writes volumesAttached as the attach-detach controller does.
func attached(ids ...string) func(*corev1.NodeStatus) {
	return func(s *corev1.NodeStatus) {
		s.VolumesAttached = nil
		for _, id := range ids {
			s.VolumesAttached = append(s.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName("kubernetes.io/csi/" + id)})
		}
	}
}

// want compares the server's list, and the volumes marked for the manager, with the expected ones.
func (w *world) want(when, inUse string, marked ...state.VolumeID) {
	w.t.Helper()
	synctest.Wait()
	if got := w.inUse(); got != inUse {
		w.t.Errorf("%s: the server has %q in use, want %q", when, got, inUse)
	}
	if got := w.marks(); !slices.Equal(got, marked) {
		w.t.Errorf("%s: the manager may make something of %q, want %q", when, got, marked)
	}
}

// using starts a reporter on a Node to which the volumes are attached, and on which they are in use.
func using(t *testing.T, ids ...state.VolumeID) *world {
	t.Helper()
	w := start(t)
	n := node()
	for _, id := range ids {
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName("kubernetes.io/csi/" + string(id))})
	}
	w.server.Put(n)
	w.use(ids...)
	w.seeNode()
	return w
}

// The reporter writes nothing before it knows the records and the Node; then it writes at once. The manager may go on
// only after the write.
//
// Items: E11.
// Faults: A038.
func TestVolumesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		n := node()
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^old"}
		attached("d^a", "d^b")(&n.Status)
		w.server.Put(n)
		w.mu.Lock()
		w.used = []state.VolumeID{"d^a"}
		w.mu.Unlock()
		w.seeNode()
		w.want("before the records are known", "d^old")
		w.use("d^a")
		w.want("then", "d^a", "d^a")
		w.use("d^a", "d^b")
		w.want("with another volume", "d^a d^b", "d^a", "d^b")
		w.use("d^b")
		w.want("without the first", "d^b", "d^b")
		w.use()
		w.want("without any", "")
	})
}

// The other way round: the reporter knows the records, and not the Node.
//
// Items: E11.
func TestNothingIsWrittenBeforeTheNodeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		n := node()
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^old"}
		attached("d^a")(&n.Status)
		w.server.Put(n)
		w.use("d^a")
		time.Sleep(time.Hour)
		w.want("before the Node is seen", "d^old")
		w.seeNode()
		w.want("then", "d^a", "d^a")
	})
}

// While the journal may have lost records, no volume leaves the list: pods without a record may use it.
//
// Faults: A186.
func TestNoVolumeLeavesTheListWhileRecordsMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		n := node()
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^old"}
		attached("d^a", "d^old")(&n.Status)
		w.server.Put(n)
		w.unsure = true
		w.seeNode()
		w.use()
		w.want("without any that is known", "d^old")
		w.use("d^a")
		w.want("with another volume", "d^old d^a", "d^a")
		w.mu.Lock()
		w.unsure = false
		w.mu.Unlock()
		w.use("d^a")
		w.want("once all is known", "d^a", "d^a")
	})
}

// The Node in the answer to the write must list the volume in volumesAttached: a controller that is about to detach
// has removed it. The watch shows when it is back.
//
// Items: A21, A22.
// Faults: A180.
func TestVolumeIsNotForMountingUntilTheNodeHasItAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(node())
		w.use("d^a")
		w.seeNode()
		w.want("in use and not attached", "d^a")
		w.change(attached("d^a"))
		w.want("attached, before the watch tells", "d^a")
		w.server.Took()
		w.seeNode()
		w.want("attached", "d^a", "d^a")
		w.change(attached())
		w.seeNode()
		w.want("detached by force", "d^a")
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("the list is as it was, and still: %q", took)
		}
	})
}

// The watch may lag behind the answer to a write: the reporter ignores an earlier version of the Node.
func TestAWatchBehindTheAnswerIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(node())
		w.use()
		w.change(attached("d^a"))
		before := w.seeNode()
		w.change(attached())
		w.use("d^a")
		w.want("detached before the list was written", "d^a")
		w.reporter.Node(before)
		w.want("an earlier Node, which has it attached", "d^a")
	})
}

// The answer to a write may be ahead of the watch. A volume may then have been detached and attached again without the
// provider of attachments knowing it, so nothing more is marked until the watch has shown that Node. What was marked
// stays marked.
//
// Faults: A182.
func TestNothingMoreIsMarkedWhileTheWatchLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a", "d^b")
		w.use("d^a")
		w.want("a pod left", "d^a", "d^a")
		w.mu.Lock()
		w.lags = true
		w.mu.Unlock()
		w.change(attached("d^a")) // d^b is detached
		w.change(attached("d^a", "d^b"))
		w.use("d^a", "d^b")
		w.want("its successor came, and the watch lags", "d^a d^b", "d^a")
		w.seeNode()
		w.want("the watch has caught up", "d^a d^b", "d^a", "d^b")
	})
}

// A watch that lags may show a Node from before this process: no volume may be mounted until the server has answered
// once.
func TestAListThatIsThereIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		n := node()
		attached("d^a")(&n.Status)
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^a"}
		w.server.Put(n)
		stale := &corev1.Node{}
		w.server.Get("nodes", "n1", stale)
		w.change(func(s *corev1.NodeStatus) { *s = corev1.NodeStatus{} })
		w.reporter.Node(stale)
		w.use("d^a")
		w.want("the watch has it in both lists, the server in none", "d^a")
	})
}

// Each process changes the Node by its first write, even if the list stays the same. Then the server refuses a late
// write of an earlier process, since that is for an older version.
//
// Faults: A180.
func TestEachProcessChangesTheNodeByItsFirstWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		for range 2 {
			w := using(t, "d^a")
			n := &corev1.Node{}
			w.server.Get("nodes", "n1", n)
			writer := n.Annotations[report.WriterAnnotation]
			if writer == "" || seen[writer] {
				t.Errorf("the writer is %q after %v", writer, seen)
			}
			seen[writer] = true
		}
	})
}

// Until the server accepts the list, the volume is not marked for the manager.
func TestVolumeIsNotReportedUntilTheServerHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		n := node()
		attached("d^a")(&n.Status)
		w.server.Put(n)
		w.use()
		w.seeNode()
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusInternalServerError} })
		w.use("d^a")
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(w.marks()) > 0 {
			t.Fatalf("marked %q", w.marks())
		}
		if p := w.reporter.Findings(); !slices.ContainsFunc(p, func(p outage.Finding) bool { return p.What == "status.volumesInUse" }) {
			t.Errorf("problems: %v", p)
		}
		w.server.Fail(nil)
		time.Sleep(time.Minute)
		w.want("the server is back", "d^a", "d^a")
	})
}

// A write whose answer is lost may be applied late. The reporter repeats it unchanged before any other write, and the
// server refuses the late one for its older version.
//
// Faults: A180.
func TestALateWriteReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		var late []fakeapi.Request
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			late = append(late, r)
			return &fakeapi.Answer{Code: http.StatusGatewayTimeout}
		})
		w.use() // the write of the empty list gets no answer
		synctest.Wait()
		w.use("d^a") // then the volume is wanted again
		w.want("while nothing is answered", "d^a")
		var then []fakeapi.Request
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "patch" {
				then = append(then, r)
			}
			return nil
		})
		time.Sleep(time.Hour)
		w.want("the server is back", "d^a", "d^a")
		if len(then) != 2 || !strings.Contains(then[0].BodyText, `"volumesInUse":null`) {
			t.Errorf("the write without an answer is not sent again before the next: %q", then)
		}
		var first struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal([]byte(late[0].BodyText), &first); err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{}
		w.server.Get("nodes", "n1", n)
		if v := first.Metadata.ResourceVersion; v == "" || v == n.ResourceVersion {
			t.Errorf("the late write asks for version %q, and the Node has %q: it would be applied", v, n.ResourceVersion)
		}
	})
}

// If another writer changed the Node, the server refuses the write: the reporter writes again, for the current Node.
func TestAWriteForAnOldNodeIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t)
		w.change(attached("d^a"))
		w.use("d^a")
		w.want("the Node changed before the write", "d^a", "d^a")
	})
}

// A volume that is used again while the reporter removes it from the list stays on it.
func TestVolumeThatComesBackStaysListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		w.server.Took()
		w.settling = func() {
			w.settling = nil
			w.mu.Lock()
			w.used = []state.VolumeID{"d^a"}
			w.mu.Unlock()
		}
		w.use()
		w.want("it came back", "d^a", "d^a")
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("wrote: %q", took)
		}
	})
}

// If the Node was deleted and registered again, the reporter writes the list again. While there is no Node, no volume
// may be mounted.
func TestNodeThatIsMadeAgainIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		w.want("before", "d^a", "d^a")
		w.server.Delete("nodes", "n1")
		w.reporter.Node(nil)
		w.want("deleted", "")
		other := node()
		other.UID = "u2"
		w.server.Put(other)
		w.seeNode()
		w.want("made again", "d^a")
		w.change(attached("d^a"))
		w.seeNode()
		w.want("attached", "d^a", "d^a")
	})
}

// If another program replaces the list, the reporter writes it again at once and shows a problem: the agent that runs
// the pods writes the Node's status too.
//
// Faults: A181.
func TestAListThatIsOverwrittenIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		shown := func() bool {
			return slices.ContainsFunc(w.reporter.Findings(), func(p outage.Finding) bool {
				return strings.Contains(p.Text, "another program replaced status.volumesInUse of Node n1")
			})
		}
		erase := func(s *corev1.NodeStatus) { s.VolumesInUse = nil }
		w.change(erase)
		w.seeNode()
		w.want("overwritten", "d^a", "d^a")
		if !shown() {
			t.Errorf("problems: %v", w.reporter.Findings())
		}
		if e := w.events(); len(e) != 1 || e[0].Reason != "VolumesInUseOverwritten" || e[0].InvolvedObject.Kind != "Node" {
			t.Errorf("events: %v", e)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if shown() {
			t.Errorf("an hour later: %v", w.reporter.Findings())
		}
	})
}

// Two programs that each rewrite their list again and again do not flood the server.
func TestTwoWritersAreASecondApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		began, written := time.Now(), 0
		for range 1000 {
			w.change(func(s *corev1.NodeStatus) {
				if s.VolumesInUse != nil { // rewritten since the last change
					written++
				}
				s.VolumesInUse = nil
			})
			w.seeNode()
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		// Writes that the server refuses because the other writer was faster do not count.
		most := int(time.Since(began)/time.Second) + 5
		if written > most || written < most/2 {
			t.Errorf("written again %d times in %v, want %d to %d", written, time.Since(began), most/2, most)
		}
	})
}

// A write may be applied although its answer is lost, while the watch still shows the Node from before. The reporter
// takes the list that it then finds for its own, not for another program's.
func TestAnAppliedWriteWithoutAnAnswerIsNoReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a", "d^b")
		w.seeNode() // the next write is for the newest version
		lose := true
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb != "patch" || !strings.Contains(r.BodyText, "volumesInUse") || !lose {
				return nil
			}
			lose = false
			return &fakeapi.Answer{Err: io.ErrUnexpectedEOF, Late: true}
		})
		w.use("d^a")
		time.Sleep(time.Minute)
		w.want("the write was repeated", "d^a", "d^a")
		if p := w.reporter.Findings(); len(p) > 0 {
			t.Errorf("problems: %v", p)
		}
		if e := w.events(); len(e) > 0 {
			t.Errorf("events: %v", e)
		}
	})
}

// Writes may fail while the watch goes on. Then a Node that is deleted, or has been made again, still ends what the
// manager may use at once: a controller that sees an empty list may detach.
//
// Faults: A038.
func TestANodeThatGoesWhileNothingCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := using(t, "d^a")
		w.server.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "patch" {
				return &fakeapi.Answer{Code: http.StatusServiceUnavailable}
			}
			return nil
		})
		w.use("d^a", "d^b")
		time.Sleep(10 * time.Minute) // the pauses are long now
		w.want("another volume waits for its write", "d^a", "d^a")
		again := node()
		again.UID = "u2"
		attached("d^a")(&again.Status)
		w.server.Put(again)
		w.seeNode()
		w.want("the Node was made again", "")
		w.server.Fail(nil)
		time.Sleep(time.Minute)
		w.want("the server is back", "d^a d^b", "d^a")
	})
}
