package csiclient

import (
	"context"
	"log/slog"
	"path"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Metrics measures the calls of all drivers in the process.
type Metrics struct{ seconds *prometheus.HistogramVec }

// NewMetrics registers csi_operations_seconds{driver_name, method_name,
// grpc_status_code, migrated} with r. Name and labels are the kubelet's; the buckets start
// at 100 µs, the time of a call over a socket. It fails if r already has that name.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "csi_operations_seconds",
		Help: "Duration of CSI calls, in seconds, with their gRPC status.",
		Buckets: []float64{
			1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60,
			120,
		},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
	if err := r.Register(seconds); err != nil {
		return nil, err
	}
	return &Metrics{seconds: seconds}, nil
}

// observe returns the interceptor of every unary call, including those made through
// Conn. It checks the request's limits, sets a deadline, removes secrets from errors,
// and logs and measures the call.
func (d *Driver) observe() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		msg, ok := req.(proto.Message)
		if !ok {
			return status.Errorf(codes.Internal, "%s: request is a %T, not a message", method, req)
		}
		if err := checkLimits(msg); err != nil {
			return err
		}
		d.warnOversize(path.Base(method), msg)
		limit, changes := d.deadlines.of(path.Base(method))
		if _, limited := ctx.Deadline(); changes || !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		var seen atomic.Bool
		start := time.Now()
		err := invoke(context.WithValue(ctx, answerKey{}, &seen), method, req, reply, cc, opts...)
		took := time.Since(start)
		if err != nil {
			s := status.Convert(err)
			err = &rpcError{s: status.New(s.Code(), cleanMessage(s.Message(), msg)), answered: seen.Load()}
		}
		d.measure(ctx, method, err, took)
		d.logCall(ctx, ended{call: path.Base(method), req: msg, took: took, err: err})
		return err
	}
}

// measure counts a call that ended with err.
func (d *Driver) measure(ctx context.Context, method string, err error, took time.Duration) {
	if d.metrics != nil {
		code := status.Code(err)
		if code > codes.Unauthenticated { // gRPC has no such code; each would add series
			code = codes.Unknown
		}
		d.metrics.seconds.WithLabelValues(string(d.name), method, code.String(),
			strconv.FormatBool(isMigrated(ctx))).Observe(took.Seconds())
	}
}

// migratedKey is the context key that marks calls for a migrated volume.
type migratedKey struct{}

// about returns the context for calls about v. It marks them if v is migrated, which is
// a label of the measurement.
func about(ctx context.Context, v state.Volume) context.Context {
	if !v.Spec.Migrated {
		return ctx
	}
	return context.WithValue(ctx, migratedKey{}, true)
}

func isMigrated(ctx context.Context) bool { return ctx.Value(migratedKey{}) != nil }

// ended describes a call that has ended.
type ended struct {
	call string
	req  proto.Message
	took time.Duration
	err  error
}

// logCall logs a call at debug level only: the caller already logs the step at info, and
// building the line takes longer than some drivers take to answer.
func (d *Driver) logCall(ctx context.Context, e ended) {
	if !d.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []slog.Attr{
		slog.String("call", e.call),
		slog.String("code", status.Code(e.err).String()),
		slog.Duration("took", e.took),
		slog.Any("request", sanitized{e.req}),
	}
	if r, ok := e.req.(interface{ GetVolumeId() string }); ok {
		attrs = append(attrs, slog.String("volume", string(state.SharedID(d.name, r.GetVolumeId()))))
	}
	if e.err != nil {
		attrs = append(attrs, slog.Any("err", e.err))
	}
	d.log.LogAttrs(ctx, slog.LevelDebug, "csi call ended", attrs...)
}

// answerKey is the context key of the *atomic.Bool that answers sets.
type answerKey struct{}

// answers is a stats handler that records which calls the driver answered. gRPC does not
// say whether a status came from the server or from its own client code.
type answers struct{}

func (answers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (answers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (answers) HandleConn(context.Context, stats.ConnStats)                       {}

func (answers) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InTrailer); !ok {
		return
	}
	if seen, ok := ctx.Value(answerKey{}).(*atomic.Bool); ok {
		seen.Store(true)
	}
}
