package report_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

var (
	listAll = metav1.ListOptions{}
	data    = report.Claim{Namespace: "default", Name: "c", Volume: "pv"}
)

// claim returns the claim on the server, with its resize status and the text of its condition.
func (w *world) claim() (c corev1.PersistentVolumeClaim, status corev1.ClaimResourceStatus, failure string) {
	w.server.Get("persistentvolumeclaims", "default/c", &c)
	for _, cond := range c.Status.Conditions {
		if cond.Type == corev1.PersistentVolumeClaimNodeResizeError {
			failure = cond.Message
		}
	}
	return c, c.Status.AllocatedResourceStatuses["storage"], failure
}

// A pending expansion is in progress while the call runs, and then done.
//
// Items: I12.
func TestPendingIsInProgressAndThenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(grown(corev1.PersistentVolumeClaimNodeResizePending))
		if err := w.reporter.Expanding(t.Context(), data); err != nil {
			t.Fatal(err)
		}
		if _, status, _ := w.claim(); status != corev1.PersistentVolumeClaimNodeResizeInProgress {
			t.Errorf("status %q", status)
		}
		w.reporter.ExpandFailed(data, report.ExpandFailure{Bytes: 2 << 30, Text: "no", Attempts: 1})
		synctest.Wait()
		w.reporter.Expanded(data, 2<<30)
		synctest.Wait()
		c, status, failure := w.claim()
		if status != "" || failure != "" || c.Status.Capacity.Storage().Value() != 2<<30 {
			t.Errorf("status %q, failure %q, capacity %v", status, failure, c.Status.Capacity)
		}
		// The reporter does not write a claim that has the size already, nor one that no user resizes.
		w.server.Took()
		if err := w.reporter.Expanding(t.Context(), data); err != nil {
			t.Fatal(err)
		}
		if took := w.server.Took(); len(took) != 1 || took[0] != "get persistentvolumeclaims default/c" {
			t.Errorf("requests %q", took)
		}
		w.server.Delete("persistentvolumeclaims", "default/c")
		if err := w.reporter.Expanding(t.Context(), data); err != nil {
			t.Error(err)
		}
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusInternalServerError} })
		if err := w.reporter.Expanding(t.Context(), data); err == nil {
			t.Error("no error of a server that fails")
		}
	})
}

// Items: I09, I10.
func TestFailuresAreInTheClaim(t *testing.T) {
	const pending, progress, infeasible = corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible
	for name, tc := range map[string]struct {
		status  corev1.ClaimResourceStatus
		request string
		failure report.ExpandFailure
		want    corev1.ClaimResourceStatus
		said    string
	}{
		"infeasible":                            {progress, "2Gi", report.ExpandFailure{Infeasible: true, Text: "too large", Attempts: 1}, infeasible, "too large"},
		"infeasible, not begun":                 {pending, "2Gi", report.ExpandFailure{Infeasible: true, Text: "too large", Attempts: 1}, infeasible, "too large"},
		"any other":                             {progress, "2Gi", report.ExpandFailure{Text: "no", Attempts: 7}, progress, "no"},
		"any other, another size asked":         {progress, "1Gi", report.ExpandFailure{Text: "no", Attempts: 2}, infeasible, "no"},
		"the first, another size asked":         {progress, "1Gi", report.ExpandFailure{Text: "no", Attempts: 1}, progress, "no"},
		"the controller's turn":                 {corev1.PersistentVolumeClaimControllerResizeInProgress, "2Gi", report.ExpandFailure{Infeasible: true, Text: "no"}, corev1.PersistentVolumeClaimControllerResizeInProgress, ""},
		"no progress, with an external-resizer": {"", "2Gi", report.ExpandFailure{Infeasible: true, Text: "no"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t)
				c := grown(tc.status)
				c.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse(tc.request)}
				w.server.Put(c)
				w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusInternalServerError} })
				tc.failure.Bytes = 2 << 30
				w.reporter.ExpandFailed(data, tc.failure)
				time.Sleep(10 * time.Minute)
				w.server.Fail(nil)
				time.Sleep(10 * time.Minute)
				is, status, said := w.claim()
				if status != tc.want || said != tc.said || is.Status.Capacity.Storage().Value() != 1<<30 {
					t.Errorf("status %q, said %q, capacity %v", status, said, is.Status.Capacity)
				}
				if kept := len(is.Status.Conditions); tc.said != "" && kept != 3 {
					t.Errorf("conditions %v", is.Status.Conditions)
				}
				// It does not write the same text again, but it writes another one.
				w.server.Took()
				w.reporter.ExpandFailed(data, tc.failure)
				synctest.Wait()
				if took := w.server.Took(); len(took) != 1 && tc.want != infeasible {
					t.Errorf("the same again: %q", took)
				}
				tc.failure.Text = "otherwise"
				w.reporter.ExpandFailed(data, tc.failure)
				synctest.Wait()
				if _, _, said := w.claim(); tc.want == progress && said != "otherwise" {
					t.Errorf("said %q", said)
				}
			})
		})
	}
}

// While the server is away, a claim may be deleted and one of the same name be made, whose volume is another. What is
// known of the first volume is not written to it.
func TestAClaimThatWasMadeAgainIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(grown(""))
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusServiceUnavailable} })
		w.reporter.Expanded(data, 100<<30)
		time.Sleep(time.Minute)
		w.server.Delete("persistentvolumeclaims", "default/c")
		again := grown("")
		again.Spec.VolumeName = "pv-2"
		w.server.Put(again)
		w.server.Fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if c, _, _ := w.claim(); c.Status.Capacity.Storage().String() != "1Gi" {
			t.Errorf("capacity: got %s, want 1Gi", c.Status.Capacity.Storage())
		}
		if p := w.reporter.Findings(); len(p) > 0 {
			t.Errorf("problems: %v", p)
		}
	})
}

// A proxy without a route to the API server answers 404 for every object. What is to be written is kept.
func TestANotFoundOfAProxyLosesNoSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Put(grown(corev1.PersistentVolumeClaimNodeResizePending))
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer {
			return &fakeapi.Answer{Code: http.StatusNotFound, Body: "<html>404 page not found</html>"}
		})
		w.reporter.Expanded(data, 2<<30)
		time.Sleep(time.Minute)
		w.server.Fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if c, _, _ := w.claim(); c.Status.Capacity.Storage().String() != "2Gi" {
			t.Errorf("capacity: got %s, want 2Gi", c.Status.Capacity.Storage())
		}
	})
}
