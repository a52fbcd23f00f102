package report_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// ward is a reporter that receives the health of volumes.
type ward struct {
	*world
	mu     sync.Mutex
	health report.Health
}

func newWard(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) *ward {
	w, server := &ward{}, fakeapi.New()
	w.world = start(t, func(c *report.Config) {
		c.Core, c.Storage = server.Clients(wrap)
		c.Health = func() report.Health { w.mu.Lock(); defer w.mu.Unlock(); return w.health }
	})
	w.server = server
	server.Put(node(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "p1"}})
	w.reporter.DriverUp(report.Driver{Name: "d.test", NodeID: "id-1"})
	w.seeNode()
	w.seeNode()
	return w
}

// pod returns the pod as the watch showed it last.
func (w *ward) pod() *corev1.Pod {
	p := &corev1.Pod{}
	if !w.server.Get("pods", "default/web", p) {
		w.t.Fatal("no pod")
	}
	return p
}

// say reports the health of the pod's volumes and of the driver's storage, for the pod as seen.
func (w *ward) say(seen *corev1.Pod, volumes map[string][]corev1.VolumeHealthCondition, storage ...storagev1.StorageHealthCondition) {
	w.mu.Lock()
	w.health = report.Health{
		Pods:    []report.PodHealth{{Pod: seen, Volumes: volumes}},
		Storage: map[state.DriverName][]storagev1.StorageHealthCondition{"d.test": storage},
	}
	w.mu.Unlock()
	w.reporter.HealthChanged()
	synctest.Wait()
}

func wrong(status corev1.VolumeHealthStatusType, reason, message string) corev1.VolumeHealthCondition {
	return corev1.VolumeHealthCondition{Status: status, Reason: reason, Message: message}
}

// shown returns the health in the pod's status, with the second at which each entry changed.
func (w *ward) shown() string {
	var lines []string
	for _, h := range w.pod().Status.VolumeHealth {
		line := h.Name
		for _, c := range h.HealthConditions {
			line += " " + string(c.Status) + "/" + c.Reason + "/" + c.Message
		}
		lines = append(lines, line+" @"+h.LastTransitionTime.UTC().Format("15:04:05"))
	}
	return strings.Join(lines, "; ")
}

func (w *ward) want(what, want string) {
	w.t.Helper()
	if got := w.shown(); got != want {
		w.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// patches returns the number of status writes since the last call.
func (w *ward) patches(resource string) int {
	return len(slices.DeleteFunc(w.server.Took(), func(q string) bool {
		return !strings.HasPrefix(q, "patch "+resource) || !strings.Contains(q, "/status")
	}))
}

// A Pod's status has an entry for each volume that is unwell, or was. The reporter writes it when the set of kinds
// and reasons changes; not for another message, nor while the watch lags behind its own write.
//
// Items: Q06.
func TestAPodSaysHowItsVolumesFare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		old := w.pod()
		w.say(old, map[string][]corev1.VolumeHealthCondition{"data": nil, "logs": nil})
		w.want("all well", "")
		sick := wrong(corev1.VolumeHealthDegraded, "OneDisk", "one disk of two")
		w.say(old, map[string][]corev1.VolumeHealthCondition{"data": {sick, sick}, "logs": nil})
		w.want("one is not well", "data Degraded/OneDisk/one disk of two @00:00:00")
		w.patches("pods")
		time.Sleep(10 * time.Second)
		other := sick
		other.Message = "one disk of three"
		w.say(old, map[string][]corev1.VolumeHealthCondition{"data": {other}})
		if n := w.patches("pods"); n != 0 {
			t.Errorf("%d writes for another message", n)
		}
		w.say(old, map[string][]corev1.VolumeHealthCondition{"data": {other, wrong(corev1.VolumeHealthInaccessible, "NoPath", "")}})
		w.want("a second trouble", "data Degraded/OneDisk/one disk of three Inaccessible/NoPath/ @00:00:10")
		w.say(old, map[string][]corev1.VolumeHealthCondition{})
		w.want("nothing is said of it", "data Degraded/OneDisk/one disk of three Inaccessible/NoPath/ @00:00:10")
		w.say(old, map[string][]corev1.VolumeHealthCondition{"data": nil, "logs": {sick}})
		w.want("well again", "data @00:00:10; logs Degraded/OneDisk/one disk of two @00:00:10")
		if p := w.reporter.Findings(); len(p) > 0 {
			t.Errorf("problems: %v", p)
		}
	})
}

// If another program removes the entry from the status, the reporter writes it once more, within a minute. It ends an
// earlier daemon's entry for a volume that is well now.
//
// Items: Q06.
func TestHealthIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		lost := map[string][]corev1.VolumeHealthCondition{"data": {wrong(corev1.VolumeHealthDataLoss, "Torn", "")}}
		w.say(w.pod(), lost)
		p := w.pod()
		p.Status.VolumeHealth = nil
		w.server.Put(p)
		w.mu.Lock()
		w.health.Pods[0].Pod = w.pod() // the watch shows the change
		w.mu.Unlock()
		w.patches("pods")
		time.Sleep(10 * time.Minute)
		w.want("written again", "data DataLoss/Torn/ @00:01:00")
		if n := w.patches("pods"); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		p := w.pod()
		p.Status.VolumeHealth = []corev1.PodVolumeHealth{{Name: "data", HealthConditions: []corev1.VolumeHealthCondition{wrong(corev1.VolumeHealthDegraded, "Old", "")}}}
		w.server.Put(p)
		w.say(w.pod(), map[string][]corev1.VolumeHealthCondition{"data": nil})
		w.want("of before", "data @00:00:00")
	})
}

// The reporter repeats a failed write and shows a problem; a deleted pod, or another one with its name, is no
// failure.
func TestHealthThatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		lost := map[string][]corev1.VolumeHealthCondition{"data": {wrong(corev1.VolumeHealthDataLoss, "Torn", "")}}
		w.server.Fail(func(q fakeapi.Request) *fakeapi.Answer {
			if q.Verb == "patch" && q.Resource == "pods" {
				return &fakeapi.Answer{Code: http.StatusInternalServerError}
			}
			return nil
		})
		w.say(w.pod(), lost)
		if p := w.reporter.Findings(); len(p) != 1 || p[0].What != "health of volumes" {
			t.Errorf("problems: %v", p)
		}
		w.server.Fail(nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := w.shown(); !strings.HasPrefix(got, "data DataLoss/Torn/") || len(w.reporter.Findings()) > 0 {
			t.Errorf("after the failure: %q, problems %v", got, w.reporter.Findings())
		}
		gone := w.pod()
		gone.Name, gone.UID, gone.Status.VolumeHealth = "gone", "p9", nil
		w.say(gone, lost)
		other := w.pod()
		other.UID, other.Status.VolumeHealth = "p0", nil
		was := w.shown()
		w.say(other, lost)
		if got := w.shown(); got != was || len(w.reporter.Findings()) > 0 {
			t.Errorf("of another pod: %q, problems %v", got, w.reporter.Findings())
		}
	})
}

// dropping is an API server that does not store the health of volumes.
type dropping struct{ http.RoundTripper }

func (d dropping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") {
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
	}
	return d.RoundTripper.RoundTrip(r)
}

// If a server does not store it (feature gate CSIVolumeHealth), the reporter does not try again for an hour.
func TestAServerThatKeepsNoHealthIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, func(rt http.RoundTripper) http.RoundTripper { return dropping{rt} })
		w.say(w.pod(), map[string][]corev1.VolumeHealthCondition{"data": {wrong(corev1.VolumeHealthDegraded, "OneDisk", "")}}, degraded("OneRack"))
		w.server.Took()
		time.Sleep(59 * time.Minute)
		if took := w.server.Took(); len(took) > 0 {
			t.Errorf("asked within the hour: %q", took)
		}
		time.Sleep(2 * time.Minute)
		if took := w.server.Took(); len(took) != 3 { // patch the pod, read and write the CSINode
			t.Errorf("in an hour %q, want 3 requests", took)
		}
		if p := w.reporter.Findings(); len(p) > 0 {
			t.Errorf("problems: %v", p)
		}
	})
}

func degraded(reason string) storagev1.StorageHealthCondition {
	return storagev1.StorageHealthCondition{Status: storagev1.StorageDegraded, Reason: reason}
}

// storage returns the storage health in the CSINode.
func (w *ward) storage() string {
	c := &storagev1.CSINode{}
	w.server.Get("csinodes", "n1", c)
	var lines []string
	for _, h := range c.Status.StorageHealth {
		line := h.Name
		for _, c := range h.HealthConditions {
			line += " " + string(c.Status) + "/" + c.Reason
			if c.AccessMode != nil {
				line += "/" + string(*c.AccessMode)
			}
			line += "@" + c.LastTransitionTime.UTC().Format("15:04:05")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// The CSINode has the conditions that drivers report about their storage, each with its start. Another driver's entry
// stays; that of a driver that went away goes. The reporter reads the CSINode when the conditions have changed, not
// each time it asks the drivers.
//
// Items: Q07.
func TestACSINodeSaysHowStorageFares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		c := &storagev1.CSINode{}
		w.server.Get("csinodes", "n1", c)
		c.Status.StorageHealth = []storagev1.StorageHealth{{Name: "other.test", HealthConditions: []storagev1.StorageHealthCondition{degraded("Old")}}}
		w.server.Put(c)
		want := func(what, want string, requests int) {
			t.Helper()
			if got := w.storage(); got != want {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
			if took := w.server.Took(); len(took) != requests {
				t.Errorf("%s: %q, want %d requests", what, took, requests)
			}
		}
		w.server.Took()
		const other = "other.test StorageDegraded/Old@00:00:00"
		w.say(w.pod(), nil)
		want("well", other, 1)
		w.say(w.pod(), nil, degraded("OneRack"), degraded("OneRack"))
		want("one trouble", other+"; d.test StorageDegraded/OneRack@00:00:00", 2)
		time.Sleep(10 * time.Second)
		mode := corev1.ReadWriteMany
		many := degraded("OneRack")
		many.AccessMode = &mode
		w.say(w.pod(), nil, degraded("OneRack"), many)
		want("two", other+"; d.test StorageDegraded/OneRack@00:00:00 StorageDegraded/OneRack/ReadWriteMany@00:00:10", 2)
		time.Sleep(10 * time.Minute)
		want("later", other+"; d.test StorageDegraded/OneRack@00:00:00 StorageDegraded/OneRack/ReadWriteMany@00:00:10", 0)
		w.say(w.pod(), nil)
		want("well again", other, 2)
		w.say(w.pod(), nil, many)
		w.mu.Lock()
		w.health.Storage = nil // a driver that has gone away is not asked
		w.mu.Unlock()
		w.reporter.DriverDown("d.test")
		time.Sleep(2 * time.Minute)
		if got := w.storage(); got != other {
			t.Errorf("a driver that went: %q, want %q", got, other)
		}
	})
}

// When the Node was deleted and made again, its CSINode is another one, which gets the conditions too.
func TestTheCSINodeOfANewNodeSaysHowStorageFares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t, nil)
		w.say(w.pod(), nil, degraded("OneRack"))
		const want = "d.test StorageDegraded/OneRack@00:00:00"
		if got := w.storage(); got != want {
			t.Fatalf("at first: %q", got)
		}
		w.server.Delete("csinodes", "n1")
		w.server.Delete("nodes", "n1")
		again := node()
		again.UID = "u2"
		w.server.Put(again)
		w.seeNode()
		time.Sleep(2 * time.Minute)
		if got := w.storage(); !strings.HasPrefix(got, "d.test StorageDegraded/OneRack@") {
			t.Errorf("of the new Node: %q, want %q", got, want)
		}
	})
}
