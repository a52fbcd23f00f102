// Package tracing sends the life of each volume to an OpenTelemetry collector: a trace
// per life, with a span for each call for the volume.
//
// Owns: which trace a volume's calls belong to, and the exporter.
//
// Does not: make calls, keep them (package recorder does), or delay anything. Spans
// that the collector does not accept in time are lost; the SDK logs their number.
//
// A life begins with the first call for a volume that is not on the node, and ends with
// the call that removed the last of it. Its root span ends when the first pod has the
// volume, so that its length is what that pod waited; later calls are in the same
// trace. A restart of the daemon begins a new trace, and so does the next call for a
// volume that was dropped to make room ([Volumes]).
//
// Concurrency: a [Tracer] is safe for concurrent use.
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

// Volumes bounds the lives that are traced at once; the one that began first makes
// room.
const Volumes = 4096

// Tracer turns ended calls into spans.
type Tracer struct {
	base     context.Context // without a span: the parent of all root spans
	provider *trace.TracerProvider
	tracer   api.Tracer

	mu    sync.Mutex // guards the fields below
	lives map[state.VolumeID]*life
	order uint64 // the order of the latest life
}

// life is the state of a volume's trace.
type life struct {
	root  api.Span // ended by the first successful Publish
	ctx   context.Context
	pods  map[state.PodUID]bool
	gone  bool // no pod has it: any call that is not a removal begins a new life
	order uint64
}

// tracesPath is the path at which a collector receives spans (OTLP/HTTP).
const tracesPath = "/v1/traces"

// New returns a Tracer that sends to the collector at endpoint by OTLP over HTTP.
// endpoint is a URL such as http://127.0.0.1:4318, to which New adds /v1/traces, or a
// URL with a path of its own. The collector may start later. Close sends the remaining
// spans.
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

// Close ends the open spans and sends the remaining ones until ctx ends.
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

// Call records an ended call as a span.
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

// follow updates the life after a successful call.
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

// lifeOf returns the life that the call belongs to, and begins one if necessary; t.mu
// is held.
func (t *Tracer) lifeOf(c manager.EndedCall) *life {
	l, ok := t.lives[c.Volume]
	removal := c.Op == plan.Unpublish || c.Op == plan.Unstage || c.Op == plan.Detach
	if ok && (!l.gone || removal) {
		return l
	}
	if ok {
		l.root.End()
	} else if len(t.lives) == Volumes {
		t.dropOldest()
	}
	t.order++
	ctx, root := t.tracer.Start(t.base, "volume", api.WithTimestamp(c.Began), api.WithNewRoot(),
		api.WithAttributes(about(c)...))
	l = &life{root: root, ctx: ctx, pods: map[state.PodUID]bool{}, order: t.order}
	t.lives[c.Volume] = l
	return l
}

// dropOldest drops the life that began first. It walks all lives, but only for a new
// volume beyond thousands.
func (t *Tracer) dropOldest() {
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
