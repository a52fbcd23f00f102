// Package tracing tells an OpenTelemetry collector of the life of each volume:
// a trace a life, with a span for each call that was made for it.
//
// Owns: which trace a volume's calls belong to, and the exporter.
//
// Does not: make calls, keep them (package recorder does), or hold anything up.
// Spans that a collector does not take in time are lost, and counted by the SDK
// in what it logs.
//
// A life begins with the first call for a volume that is not on the node, and
// ends with the call that took the last of it away. Its root span ends when the
// first pod has the volume, so that its length is what that pod waited for; what
// comes later is in the same trace. A restart of the daemon begins a new trace,
// as does a volume that was forgotten to make room ([Volumes]).
//
// Concurrency: a [Tracer] may be used by any goroutine.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes bounds the lives that are followed at one time; the one that began
// first makes room.
const Volumes = 4096

// Tracer makes spans of ended calls.
type Tracer struct {
	base     context.Context // without spans: the parent of all that begins here
	provider *trace.TracerProvider
	tracer   api.Tracer

	mu    sync.Mutex // guards all below
	lives map[state.VolumeID]*life
	order uint64 // of the beginnings of lives
}

// life is what a volume's trace needs to go on.
type life struct {
	root  api.Span // ended at the first success of a Publish
	ctx   context.Context
	pods  map[state.PodUID]bool
	gone  bool // nothing of it is published: what is not Unstage or Detach begins a new life
	order uint64
}

// tracesPath is where a collector takes spans (OTLP/HTTP).
const tracesPath = "/v1/traces"

// New returns a Tracer that sends to the collector at endpoint by OTLP over
// HTTP: a URL such as http://127.0.0.1:4318, to which /v1/traces is added, or one
// with a path of its own. The collector need not be there yet. Close sends what
// is left.
func New(ctx context.Context, endpoint, node, version string) (*Tracer, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("endpoint of traces %q: expected a URL like http://127.0.0.1:4318", endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, err
	}
	about := resource.NewSchemaless(attribute.String("service.name", "csi-volmgr"),
		attribute.String("service.version", version), attribute.String("k8s.node.name", node))
	return newTracer(context.WithoutCancel(ctx), trace.WithBatcher(exporter), trace.WithResource(about)), nil
}

func newTracer(base context.Context, opts ...trace.TracerProviderOption) *Tracer {
	p := trace.NewTracerProvider(opts...)
	return &Tracer{base: base, provider: p, tracer: p.Tracer("csi-volmgr"), lives: map[state.VolumeID]*life{}}
}

// Close sends what was not sent yet, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	t.endAll()
	return t.provider.Shutdown(ctx)
}

func (t *Tracer) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, l := range t.lives {
		l.root.End()
		delete(t.lives, id)
	}
}

// Call makes a span of a call that ended.
func (t *Tracer) Call(c manager.EndedCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lifeOf(c)
	ended := c.Began.Add(c.TookNanos)
	attrs := about(c)
	if c.Pod != "" {
		attrs = append(attrs, attribute.String("k8s.pod.uid", string(c.Pod)))
	}
	if c.Code != "" {
		attrs = append(attrs, attribute.String("rpc.grpc.status", c.Code))
	}
	_, span := t.tracer.Start(l.ctx, c.Op.String(), api.WithTimestamp(c.Began), api.WithAttributes(attrs...))
	if c.Error != "" {
		span.SetAttributes(attribute.String("csi.outcome", c.Outcome))
		span.SetStatus(codes.Error, c.Error)
	}
	span.End(api.WithTimestamp(ended))
	if c.Error == "" {
		t.follow(c, l, ended)
	}
}

// follow notes what a call that succeeded means for the life.
func (t *Tracer) follow(c manager.EndedCall, l *life, ended time.Time) {
	switch c.Op {
	case plan.Publish:
		l.pods[c.Pod] = true
		l.root.End(api.WithTimestamp(ended)) // a second End does nothing
	case plan.Unpublish:
		delete(l.pods, c.Pod)
		l.gone = len(l.pods) == 0
	case plan.Detach:
		l.root.End(api.WithTimestamp(ended))
		delete(t.lives, c.Volume)
	}
}

// lifeOf returns the life that the call belongs to; t.mu is held.
func (t *Tracer) lifeOf(c manager.EndedCall) *life {
	l, ok := t.lives[c.Volume]
	removal := c.Op == plan.Unpublish || c.Op == plan.Unstage || c.Op == plan.Detach
	if ok && (!l.gone || removal) {
		return l
	}
	if ok {
		l.root.End()
	} else if len(t.lives) == Volumes {
		t.dropFirst()
	}
	t.order++
	ctx, root := t.tracer.Start(t.base, "volume", api.WithTimestamp(c.Began), api.WithNewRoot(),
		api.WithAttributes(about(c)...))
	l = &life{root: root, ctx: ctx, pods: map[state.PodUID]bool{}, order: t.order}
	t.lives[c.Volume] = l
	return l
}

// dropFirst makes room; it walks all, for a new volume beyond thousands only.
func (t *Tracer) dropFirst() {
	first := slices.MinFunc(slices.Collect(maps.Keys(t.lives)), func(a, b state.VolumeID) int {
		return cmp.Compare(t.lives[a].order, t.lives[b].order)
	})
	t.lives[first].root.End()
	delete(t.lives, first)
}

func about(c manager.EndedCall) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("csi.volume.id", string(c.Volume)),
		attribute.String("csi.driver", string(c.Driver)),
	}
}
