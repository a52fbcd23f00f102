package report_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ask is what the driver is to answer, guarded by world.mu.
type ask struct {
	period time.Duration
	limit  int64
	err    error
	hangs  bool
	asked  int
}

func (w *world) limit(ctx context.Context, _ state.DriverName) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ask.asked++
	if w.ask.hangs {
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
	}
	return w.ask.limit, w.ask.err
}

// set changes the driver's answers, and returns how often it was asked since the last call.
func (w *world) set(change func(*ask)) (asked int) {
	w.mu.Lock()
	asked, w.ask.asked = w.ask.asked, 0
	change(&w.ask)
	w.mu.Unlock()
	w.reporter.Wake()
	synctest.Wait()
	return asked
}

func limited(t *testing.T) *world {
	t.Helper()
	w := start(t)
	w.server.Put(node())
	w.reporter.DriverUp(report.Driver{Name: "d.test", NodeID: "id-1", MaxVolumes: 5})
	w.seeNode()
	w.seeNode() // with the written list
	return w
}

func (w *world) count() int32 {
	c := &storagev1.CSINode{}
	w.server.Get("csinodes", "n1", c)
	if len(c.Spec.Drivers) != 1 || c.Spec.Drivers[0].Allocatable == nil {
		return -1
	}
	return *c.Spec.Drivers[0].Allocatable.Count
}

// The reporter asks a driver for its limit in the period of its CSIDriver, until that or the driver goes. It writes
// the answer to CSINode, and nothing else. If the driver fails to answer, the limit stays.
//
// Items: J15, J10, N-105.
// Scenarios: U-71.
func TestLimitsAreAskedForInThePeriodOfTheCSIDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t)
		time.Sleep(time.Hour)
		if n := w.set(func(a *ask) { a.period, a.limit = time.Minute, 7 }); n != 0 || w.count() != 5 {
			t.Fatalf("without a period: asked %d times, the limit is %d", n, w.count())
		}
		w.server.Took()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if w.count() != 5 {
			t.Error("asked before the period was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := w.count(); got != 7 {
			t.Errorf("after a period: limit %d, want 7", got)
		}
		for _, took := range w.server.Took() {
			if !strings.Contains(took, "csinodes") {
				t.Errorf("beside CSINode: %s", took)
			}
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if n := w.set(func(a *ask) { a.err = errors.New("cloud is away") }); n != 10 {
			t.Errorf("in ten minutes: asked %d times", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if p := w.reporter.Findings(); w.count() != 7 || len(p) != 1 || p[0].What != "limits of driver d.test" || p[0].Text != "cloud is away" || p[0].Cause != "" {
			t.Errorf("limit %d, problems %v", w.count(), p)
		}
		w.set(func(a *ask) { a.err, a.limit, a.period = nil, 0, 2*time.Minute }) // another period starts from now
		time.Sleep(119 * time.Second)
		synctest.Wait()
		if w.count() != 7 {
			t.Error("asked before the new period was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if p := w.reporter.Findings(); w.count() != -1 || len(p) != 0 {
			t.Errorf("no limit any more: %d, problems %v", w.count(), p)
		}
		w.set(func(a *ask) { a.period = time.Second })
		time.Sleep(65 * time.Second)
		synctest.Wait()
		if n := w.set(func(a *ask) { a.period = 0 }); n != 6 {
			t.Errorf("with a period shorter than the API allows: asked %d times in 65 seconds, want 6", n)
		}
		time.Sleep(time.Hour)
		if n := w.set(func(a *ask) { a.period = time.Minute }); n != 0 {
			t.Errorf("after the period was taken back: asked %d times", n)
		}
		w.reporter.DriverDown("d.test")
		time.Sleep(time.Hour)
		if n := w.set(func(*ask) {}); n != 0 {
			t.Errorf("after the driver went: asked %d times", n)
		}
	})
}

// While a driver does not answer, the reporter does not ask it again, and writes everything else.
func TestALimitThatIsNotToldHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t)
		w.set(func(a *ask) { a.period, a.hangs = time.Minute, true })
		time.Sleep(time.Hour)
		w.reporter.Full("d.test")
		w.reporter.DriverUp(report.Driver{Name: "d.test", NodeID: "id-1", MaxVolumes: 6})
		if n := w.set(func(*ask) {}); n != 1 || w.count() != 6 {
			t.Errorf("asked %d times, the limit is %d", n, w.count())
		}
		w.reporter.DriverDown("d.test")
		synctest.Wait()
	})
}

// If an attachment is refused for lack of room, and the driver's limits are to be kept up to date, the reporter asks
// the driver at once, and once for many refusals.
//
// Items: J16, N-105.
// Scenarios: U-72.
func TestADriverWithoutRoomIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limited(t)
		w.reporter.Full("d.test")
		time.Sleep(time.Hour)
		if n := w.set(func(a *ask) { a.period, a.limit = time.Hour, 3 }); n != 0 {
			t.Fatalf("without a period: asked %d times", n)
		}
		at := time.Now()
		for range 20 {
			w.reporter.Full("d.test")
			synctest.Wait()
		}
		if got := w.count(); got != 3 || time.Since(at) != 0 {
			t.Errorf("limit %d after %v, want 3 at once", got, time.Since(at))
		}
		time.Sleep(10 * time.Minute)
		if n := w.set(func(a *ask) { a.limit = 2 }); n < 1 || n > 2 {
			t.Errorf("asked %d times for many refusals at once", n)
		}
		w.reporter.Full("other.test")
		synctest.Wait()
		if n := w.set(func(*ask) {}); n != 0 {
			t.Errorf("another driver's want of room: asked %d times", n)
		}
	})
}

// The reporter writes the annotation of migrated plugins before any driver is there, repairs it and removes it. It
// touches no other annotation, owner or driver.
//
// Items: J13, P03.
func TestTheAnnotationOfMigratedPluginsTouchesNothingElse(t *testing.T) {
	const key = "storage.alpha.kubernetes.io/migrated-plugins"
	for name, before := range map[string]map[string]string{
		"no CSINode": nil, "no annotations": {}, "others": {"theirs": "1"}, "another list": {"theirs": "1", key: "kubernetes.io/rbd"},
	} {
		for _, value := range []string{"kubernetes.io/a,kubernetes.io/b", ""} {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(c *report.Config) { c.Annotations = map[string]string{key: value} })
				w.server.Put(node())
				theirs := []storagev1.CSINodeDriver{{Name: "theirs.test", NodeID: "x"}}
				if before != nil {
					w.server.Put(&storagev1.CSINode{
						ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: before, Labels: map[string]string{"l": "1"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}}},
						Spec:       storagev1.CSINodeSpec{Drivers: theirs},
					})
				}
				w.seeNode()
				want := maps.Clone(before)
				if want == nil {
					want = map[string]string{}
				}
				if want[key] = value; value == "" {
					delete(want, key)
				}
				c := &storagev1.CSINode{}
				if !w.server.Get("csinodes", "n1", c) || !maps.Equal(c.Annotations, want) {
					t.Errorf("%s, %q: annotations %v, want %v", name, value, c.Annotations, want)
				}
				if before != nil && (c.Labels["l"] != "1" || len(c.OwnerReferences) != 1 || len(c.Spec.Drivers) != 1 || c.Spec.Drivers[0].Name != "theirs.test") {
					t.Errorf("%s, %q: touched: %+v", name, value, c)
				}
			})
		}
	}
}
