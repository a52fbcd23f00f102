// Package harness drives a system under test through the phases of a workload and measures
// how long pods wait and which resources the system uses.
package harness

import (
	"context"
	"flag"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// System is a volume manager under test. Its methods may be called by many
// goroutines at once.
type System interface {
	// Mount makes pod p known and returns when the system reports its volumes as mounted.
	Mount(ctx context.Context, p int) error
	// Unmount ends pod p and returns when the system reports that nothing of its volumes is mounted.
	Unmount(ctx context.Context, p int) error
	// Usage returns the resources that the system has used since it started.
	Usage() benchdef.Snap
	// RSS returns its resident megabytes, now and at their peak since the last call of ResetRSS.
	RSS() (now, peak float64)
	ResetRSS()
	// Goroutines returns their number, or 0 if it is not known.
	Goroutines() int
}

// Flags are the flags that every system under test takes; see README.md.
type Flags struct {
	Root, RegistrationDir, ControlSocket, Workload, Phase, Mode, Variant, Out, ProfileDir string
	API, APIControlSocket                                                                 string
	LatencyMs, QPS                                                                        float64
	Pods, Volumes, Rep, Iterations, Burst                                                 int
	Idle                                                                                  time.Duration
}

// Register declares the flags. Those for the kubelet alone are accepted and ignored.
func Register() *Flags {
	f := &Flags{}
	flag.StringVar(&f.Root, "root", "", "directory for the state and the pods' volumes")
	flag.StringVar(&f.RegistrationDir, "registration-dir", "", "directory of registration sockets")
	flag.StringVar(&f.ControlSocket, "control-socket", "", "driver control socket")
	flag.StringVar(&f.Workload, "workload", "csi", "csi or intree")
	flag.StringVar(&f.Phase, "phase", "full", "full, mount (and leave mounted), restart, propagate")
	flag.StringVar(&f.API, "api", "", "the URL of fakeapi, which has the pods and their objects (default: they are applied)")
	flag.StringVar(&f.APIControlSocket, "api-control-socket", "", "fakeapi control socket")
	flag.Float64Var(&f.QPS, "qps", 50, "requests a second with an API server (-1: no limit)")
	flag.IntVar(&f.Burst, "burst", 100, "requests at once with an API server")
	flag.StringVar(&f.Mode, "mode", "", "label: the driver's mode")
	flag.StringVar(&f.Variant, "variant", "", "label")
	flag.StringVar(&f.Out, "out", "", "append the JSON line here")
	flag.StringVar(&f.ProfileDir, "profile-dir", "", "write profiles here")
	flag.Float64Var(&f.LatencyMs, "latency-ms", 0, "label: the driver's latency")
	flag.IntVar(&f.Pods, "pods", 1, "pods")
	flag.IntVar(&f.Volumes, "volumes", 1, "volumes per pod")
	flag.IntVar(&f.Rep, "rep", 0, "label")
	flag.IntVar(&f.Iterations, "iterations", 1, "repeat mount and unmount; latencies pooled, totals medians")
	flag.DurationVar(&f.Idle, "idle", 0, "measure this long with everything mounted and nothing to do")
	flag.Duration("idle-resync", 0, "ignored")
	return f
}

// Run measures one system. T0 is when the system may begin. Start starts it and returns
// when the driver is registered with it; in the phase restart it returns at once, and Known
// waits until everything is known.
type Run struct {
	Name  string
	Flags *Flags
	T0    time.Time
	Start func(ctx context.Context) (System, error)
	// Known waits until the system knows every pod's volumes as mounted and has
	// compared them with the kernel (phase restart).
	Known func(ctx context.Context) error
	// Update changes a pod's configMap to the generation (phase propagate).
	Update func(ctx context.Context, p, gen int) error
	// Stop ends the system; mounts stay.
	Stop func() error
}

type bench struct {
	Run
	ctx     context.Context
	sys     System
	ctl     *benchdef.Ctl
	api     *benchdef.Ctl
	waiting atomic.Int64 // goroutines of the harness that wait for a pod
	mu      sync.Mutex
	r       benchdef.Result
	starts  []time.Time
}

// Main runs the phase and writes the result line.
func (r Run) Main(ctx context.Context) {
	f := r.Flags
	b := &bench{Run: r, ctx: ctx, ctl: benchdef.NewCtl(f.ControlSocket), api: benchdef.NewCtl(f.APIControlSocket)}
	b.r = benchdef.Result{
		System: r.Name, Workload: f.Workload, Mode: f.Mode, Phase: f.Phase, Variant: f.Variant, Rep: f.Rep,
		Pods: f.Pods, Volumes: f.Volumes, LatencyMs: f.LatencyMs,
		StartedAt: r.T0.UTC().Format(time.RFC3339), LoadAvg: benchdef.LoadAvg(),
	}
	if err := b.ctl.Reset(); err != nil {
		log.Fatal(err)
	}
	end := func() {}
	if f.Phase == "restart" { // restart is measured from the start
		end = b.profile("restart")
	}
	var err error
	if b.sys, err = r.Start(ctx); err != nil {
		log.Fatal(err)
	}
	switch f.Phase {
	case "full":
		b.prepare()
		b.full()
	case "mount":
		b.prepare()
		lat, total := b.mountAll()
		b.r.MountP50, b.r.TotalMs = benchdef.Pct(lat, 50), total
	case "restart":
		b.restart(end)
	case "propagate":
		b.prepare()
		b.mountAll()
		b.propagate()
		b.unmountAll()
	default:
		log.Fatalf("phase %q", f.Phase)
	}
	_, b.r.RSS = b.sys.RSS()
	if err := r.Stop(); err != nil {
		b.fail(err)
	}
	if err := b.r.Emit(f.Out); err != nil {
		log.Fatal(err)
	}
	if b.r.Errors > 0 {
		log.Fatalf("%d errors, first: %s", b.r.Errors, b.r.FirstErr)
	}
}

func (b *bench) prepare() {
	time.Sleep(300 * time.Millisecond) // what is left of the start must not count against the pods
	if err := b.ctl.Reset(); err != nil {
		log.Fatal(err)
	}
	b.r.RSSBase, _ = b.sys.RSS()
	b.sys.ResetRSS()
}

func (b *bench) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.r.Errors++
	if b.r.FirstErr == "" {
		b.r.FirstErr = err.Error()
	}
}

// each runs one function for all pods at once and returns each one's time.
func (b *bench) each(what string, one func(context.Context, int) error) (lat []float64, t0 time.Time) {
	lat = make([]float64, b.Flags.Pods)
	b.starts = make([]time.Time, b.Flags.Pods)
	var wg sync.WaitGroup
	t0 = time.Now()
	for p := range b.Flags.Pods {
		b.starts[p] = time.Now()
		b.waiting.Add(1)
		wg.Go(func() {
			defer b.waiting.Add(-1)
			if err := one(b.ctx, p); err != nil {
				b.fail(fmt.Errorf("%s of pod %d: %w", what, p, err))
			}
			lat[p] = benchdef.Ms(time.Since(b.starts[p]))
		})
	}
	wg.Wait()
	return lat, t0
}
