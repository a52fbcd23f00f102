package tracing

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var began = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// rig gets calls a second apart that take half a second each.
type rig struct {
	*Tracer
	spans *tracetest.InMemoryExporter
	now   time.Time
}

func newRig() *rig {
	e := tracetest.NewInMemoryExporter()
	return &rig{Tracer: newTracer(context.Background(), trace.WithSyncer(e)), spans: e, now: began}
}

func (r *rig) call(volume string, op plan.Kind, pod state.PodUID, failure string) {
	r.Call(manager.EndedCall{
		Volume: state.VolumeID("d^" + volume), Driver: "d", Op: op, Pod: pod,
		Began: r.now, TookNanos: time.Second / 2, Error: failure, Outcome: map[bool]string{true: "uncertain"}[failure != ""],
	})
	r.now = r.now.Add(time.Second)
}

// traces returns the names of the spans of each trace, in the order in which the traces began.
func (r *rig) traces() (traces []string) {
	number := map[string]int{}
	for _, s := range r.spans.GetSpans() {
		id := s.SpanContext.TraceID().String()
		if _, ok := number[id]; !ok {
			number[id] = len(traces)
			traces = append(traces, "")
		}
		traces[number[id]] = strings.TrimSpace(traces[number[id]] + " " + s.Name)
	}
	return traces
}

func TestALifeIsOneTrace(t *testing.T) {
	r := newRig()
	r.call("v", plan.Stage, "", "")
	r.call("v", plan.Publish, "p1", "disk is full")
	r.call("v", plan.Publish, "p1", "")
	r.call("v", plan.Publish, "p2", "")
	r.call("v", plan.Unpublish, "p1", "")
	r.call("v", plan.Publish, "p3", "") // p2 still has it: the same life
	r.call("v", plan.Unpublish, "p2", "")
	r.call("v", plan.Unpublish, "p3", "")
	r.call("v", plan.Unstage, "", "")
	r.call("v", plan.Stage, "", "") // a second life
	r.call("other", plan.Publish, "p1", "")
	r.endAll()
	want := []string{
		"Stage Publish Publish volume Publish Unpublish Publish Unpublish Unpublish Unstage",
		"Stage volume",
		"Publish volume",
	}
	if got := r.traces(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheRootIsWhatThePodWaited(t *testing.T) {
	r := newRig()
	r.call("v", plan.Stage, "", "")
	r.call("v", plan.Publish, "p", "disk is full")
	r.call("v", plan.Publish, "p", "")
	spans := r.spans.GetSpans()
	root, failed := spans[3], spans[1]
	if root.Name != "volume" || root.Parent.IsValid() || !root.StartTime.Equal(began) || root.EndTime.Sub(began) != 2500*time.Millisecond {
		t.Errorf("root: %s from %s to %s; want 2.5 s from the first call", root.Name, root.StartTime, root.EndTime)
	}
	if failed.Status.Code != codes.Error || failed.Status.Description != "disk is full" || failed.Parent.SpanID() != root.SpanContext.SpanID() {
		t.Errorf("failed call: %+v below %s", failed.Status, failed.Parent.SpanID())
	}
	if failed.EndTime.Sub(failed.StartTime) != time.Second/2 {
		t.Errorf("failed call took %s; want 500ms", failed.EndTime.Sub(failed.StartTime))
	}
}

func TestLivesAreBounded(t *testing.T) {
	r := newRig()
	for i := range Volumes + 10 {
		r.call(strconv.Itoa(i), plan.Stage, "", "")
	}
	if len(r.lives) != Volumes || r.lives["d^9"] != nil || r.lives["d^10"] == nil {
		t.Errorf("%d lives; want %d, without the first ten", len(r.lives), Volumes)
	}
}

// The exporter sends what a collector accepts: a POST of protobuf to /v1/traces.
func TestSpansReachACollector(t *testing.T) {
	got := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(b)
	}))
	defer s.Close()
	tr, err := New(t.Context(), s.URL, "node-1", "v1")
	if err != nil {
		t.Fatal(err)
	}
	tr.Call(manager.EndedCall{Volume: "d^v", Driver: "d", Op: plan.Publish, Pod: "p", Began: began, TookNanos: time.Second})
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := <-got
	for _, want := range []string{"POST /v1/traces application/x-protobuf ", "csi-volmgr", "node-1", "d^v", "Publish"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
}

func TestEndpointsThatAreNone(t *testing.T) {
	for _, endpoint := range []string{"", "127.0.0.1:4318", "grpc://x:4317", "http://", ":"} {
		if _, err := New(t.Context(), endpoint, "n", "v"); err == nil {
			t.Errorf("%q: no error", endpoint)
		}
	}
}
