package report_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

func failedMount(text string) report.Event {
	return report.Event{
		About:   corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: "web", UID: "u"},
		Warning: true, Reason: "FailedMount", Text: text,
	}
}

// events lists the events that the server has.
func (w *world) events() (all []corev1.Event) {
	w.t.Helper()
	core, _ := w.server.Clients(nil)
	list, err := core.Events("default").List(w.t.Context(), listAll)
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// The reporter counts a repeated event and drops events that come too often, but not those of other objects.
//
// Items: O09.
func TestEventsAreNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		for range 3 {
			w.reporter.Event(failedMount("volume data: no"))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		all := w.events()
		if len(all) != 1 || all[0].Count != 3 || all[0].Message != "volume data: no" || all[0].Type != corev1.EventTypeWarning || all[0].Source.Component != "csi-volmgr" || all[0].Source.Host != "n1" || all[0].InvolvedObject.UID != "u" {
			t.Fatalf("got %+v", all)
		}
		for i := range 200 {
			w.reporter.Event(failedMount(fmt.Sprint("volume data: no ", i)))
		}
		other := failedMount("volume data: neither")
		other.About.Name, other.Warning = "other", false
		w.reporter.Event(other)
		synctest.Wait()
		all = w.events()
		if len(all) > 12 || !slices.ContainsFunc(all, func(e corev1.Event) bool { return e.Message == other.Text && e.Type == corev1.EventTypeNormal }) {
			t.Errorf("%d events: %+v", len(all), all)
		}
		took := len(w.server.Took())
		w.reporter.Event(failedMount("volume data: no once more"))
		synctest.Wait()
		if n := len(w.server.Took()); n != 0 {
			t.Errorf("%d requests after %d, want none", n, took)
		}
	})
}

// A failure reported every two minutes for an hour is one event with a count, and the reporter seldom writes it. The
// end of the failure is another event, written at once.
//
// Faults: A128.
func TestAnHourOfOneFailureIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		for range 30 {
			w.reporter.Event(failedMount("volume data: no"))
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait()
		all := w.events()
		if len(all) != 1 || all[0].Count < 10 || all[0].Count > 30 {
			t.Errorf("got %+v", all)
		}
		over := failedMount("volume data: it is mounted")
		over.Warning, over.Reason = false, "SuccessfulMountVolume"
		w.reporter.Event(over)
		synctest.Wait()
		if all := w.events(); len(all) != 2 || !slices.ContainsFunc(all, func(e corev1.Event) bool { return e.Message == over.Text && e.Count == 1 }) {
			t.Errorf("once it is over: %+v", all)
		}
	})
}

// An event waits while the server is unreachable, but not if the server refuses it.
func TestEventsOutliveAServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusServiceUnavailable} })
		w.reporter.Event(failedMount("first " + strings.Repeat("é", 2000)))
		time.Sleep(10 * time.Minute)
		w.server.Fail(nil)
		time.Sleep(10 * time.Minute)
		if all := w.events(); len(all) != 1 || len(all[0].Message) > 1024 || !strings.HasSuffix(all[0].Message, "é...") {
			t.Fatalf("got %+v", all)
		}
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Code: http.StatusForbidden} })
		w.reporter.Event(failedMount("refused"))
		synctest.Wait()
		if p := w.reporter.Findings(); len(p) != 1 || p[0].What != "events" {
			t.Errorf("problems: %v", p)
		}
		w.server.Fail(nil)
		for i := range 600 { // more than the reporter keeps
			e := failedMount("last")
			e.About.Name = fmt.Sprint("web-", i)
			w.reporter.Event(e)
		}
		synctest.Wait()
		all := w.events()
		if n := len(all); n < 500 || n > 601 || slices.ContainsFunc(all, func(e corev1.Event) bool { return e.Message == "refused" }) {
			t.Errorf("%d events", n)
		}
		if p := w.reporter.Findings(); len(p) > 0 {
			t.Errorf("problems: %v", p)
		}
		// The server has forgotten the events: the reporter creates a repeated one again.
		for _, e := range w.events() {
			w.server.Delete("events", "default/"+e.Name)
		}
		e := failedMount("last")
		e.About.Name = "web-599"
		w.reporter.Event(e)
		synctest.Wait()
		if all := w.events(); len(all) != 1 || all[0].Count != 2 {
			t.Errorf("got %+v", all)
		}
	})
}

// If an event's request arrives and its answer is lost, the server has the event once, and the reporter counts it
// from then on.
func TestAnEventWhoseAnswerIsLostIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &fakeapi.Answer{Err: io.ErrUnexpectedEOF, Late: true} })
		w.reporter.Event(failedMount("volume data: no"))
		synctest.Wait()
		if p := w.reporter.Findings(); len(p) != 1 || p[0].What != "events" {
			t.Errorf("while the answer is awaited: problems: %v", p)
		}
		w.server.Fail(nil)
		time.Sleep(10 * time.Minute)
		if p := w.reporter.Findings(); len(p) != 0 {
			t.Errorf("problems: %v", p)
		}
		w.reporter.Event(failedMount("volume data: no"))
		synctest.Wait()
		if all := w.events(); len(all) != 1 || all[0].Count != 2 {
			t.Errorf("got %+v", all)
		}
	})
}

// If the server refuses an event because of its object, as in a namespace that is being deleted, the reporter drops
// it and shows no problem of the node.
func TestAnEventThatIsRefusedByItselfIsNoProblem(t *testing.T) {
	for name, a := range map[string]fakeapi.Answer{
		"its namespace is gone":      {Code: http.StatusNotFound},
		"its namespace goes":         {Code: http.StatusForbidden, Body: refusal(http.StatusForbidden, "Forbidden", `{"causes": [{"reason": "NamespaceTerminating"}]}`)},
		"it is invalid":              {Code: http.StatusUnprocessableEntity, Body: refusal(http.StatusUnprocessableEntity, "Invalid", "{}")},
		"it cannot be read":          {Code: http.StatusBadRequest, Body: refusal(http.StatusBadRequest, "BadRequest", "{}")},
		"another one is of its name": {Code: http.StatusConflict},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := start(t)
			w.server.Fail(func(fakeapi.Request) *fakeapi.Answer { return &a })
			w.reporter.Event(failedMount("volume data: no"))
			time.Sleep(time.Hour)
			if p := w.reporter.Findings(); len(p) != 0 {
				t.Errorf("%s: problems: %v", name, p)
			}
			w.server.Fail(nil)
			w.reporter.Event(failedMount("volume data: another"))
			synctest.Wait()
			if all := w.events(); len(all) != 1 || all[0].Message != "volume data: another" {
				t.Errorf("%s: got %+v", name, all)
			}
		})
	}
}

func refusal(code int, reason, details string) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q, "details": %s}`, code, reason, details)
}
