// Package harness drives a system under test through the phases of a
// workload and measures it: what a pod waits, what the system uses.
package harness

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// System is a volume manager under test. Its methods may be called by many
// goroutines at once.
type System interface {
	// Mount makes pod p known and returns when the system says that its
	// volumes are there.
	Mount(ctx context.Context, p int) error
	// Unmount says that pod p has ended and returns when the system says that
	// nothing of its volumes is mounted.
	Unmount(ctx context.Context, p int) error
	// Usage says what the system has used since it started.
	Usage() benchdef.Snap
	// RSS returns its resident megabytes, now and at their peak since the last call of ResetRSS.
	RSS() (now, peak float64)
	ResetRSS()
	// Goroutines counts them, 0 where that is not known.
	Goroutines() int
}

// Flags are those that every system under test takes; see README.md.
type Flags struct {
	Root, RegistrationDir, ControlSocket, Workload, Phase, Mode, Variant, Out, ProfileDir string
	API, APIControlSocket                                                                 string
	LatencyMs, QPS                                                                        float64
	Pods, Volumes, Rep, Iterations, Burst                                                 int
	Idle                                                                                  time.Duration
}

// Register declares the flags. Those of the kubelet alone are taken and ignored.
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

// Run measures one system. t0 is when the system may begin; start starts the
// system and returns when the driver is registered with it, but in the phase
// restart at once, with a function that waits until all is known.
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
	// Stop ends the system; what is mounted stays mounted.
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
	if f.Phase == "restart" { // which begins with the start
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
	time.Sleep(300 * time.Millisecond) // what starting left to do is not the pods' burden
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

func (b *bench) mountAll() ([]float64, float64) {
	lat, t0 := b.each("mount", b.sys.Mount)
	return lat, benchdef.Ms(time.Since(t0))
}

// unmountAll also returns how long it took until the driver had unstaged the last.
func (b *bench) unmountAll() (lat []float64, total, unstaged float64) {
	lat, t0 := b.each("unmount", b.sys.Unmount)
	total = benchdef.Ms(time.Since(t0))
	for d := time.Now().Add(time.Minute); time.Now().Before(d); time.Sleep(5 * time.Millisecond) {
		if s, err := b.ctl.Stats(false); err == nil && s.Staged == 0 {
			break
		}
	}
	s, err := b.ctl.Stats(true)
	if err != nil || s.Staged > 0 {
		b.fail(fmt.Errorf("%d volumes are still staged (%w)", s.Staged, err))
	}
	var last int64
	for _, l := range s.Timeline {
		last = max(last, l.UnstageEnd)
	}
	if b.Flags.Workload != "csi" {
		return lat, total, total
	}
	return lat, total, benchdef.Ms(time.Unix(0, last).Sub(t0))
}

// series collects one number of every cycle.
type series map[string][]float64

func (s series) add(name string, v ...float64) { s[name] = append(s[name], v...) }
func (s series) med(name string) float64       { return benchdef.Round(benchdef.Median(s[name])) }

func (b *bench) full() {
	s := series{}
	for it := range b.Flags.Iterations {
		if it > 0 {
			time.Sleep(100*time.Millisecond + time.Duration(rand.Intn(100))*time.Millisecond)
			_ = b.ctl.Reset()
			_ = os.RemoveAll(filepath.Join(b.Flags.Root, "pods")) // as for the others: every cycle starts without
			_ = os.MkdirAll(filepath.Join(b.Flags.Root, "pods"), 0o750)
		}
		b.mountCycle(s, it == 0)
		if it == 0 && b.Flags.Idle > 0 {
			b.idle()
		}
		b.unmountCycle(s, it == 0)
	}
	r, n := &b.r, float64(b.Flags.Pods*b.Flags.Volumes)
	r.MountP50, r.MountP90, r.MountP99, r.MountMax = pcts(s["lat"])
	r.TotalMs = s.med("total")
	r.VolsPerSec = benchdef.Round(n / r.TotalMs * 1e3)
	r.DrvStartP50, r.DrvDoneP50 = benchdef.Pct(s["first"], 50), benchdef.Pct(s["done"], 50)
	r.DrvDoneP99, r.DrvDoneMax = benchdef.Pct(s["done"], 99), benchdef.Pct(s["done"], 100)
	r.UnmountP50, r.UnmountP90, r.UnmountP99, r.UnmountMax = pcts(s["unm"])
	r.UnmountTotalMs, r.UnstageTotalMs = s.med("unmTotal"), s.med("unstTotal")
	r.UnmountVolsPerS = benchdef.Round(n / r.UnstageTotalMs * 1e3)
	r.CPUMount, r.CPUMountSys, r.CPUUnmount, r.CPUUnmSys = s.med("cpuM"), s.med("sysM"), s.med("cpuU"), s.med("sysU")
	r.CPUKidsMount, r.CPUKidsUnm, r.CPUDrvMount, r.CPUDrvUnm = s.med("kidM"), s.med("kidU"), s.med("drvM"), s.med("drvU")
	r.CPU = benchdef.Round(r.CPUMount + r.CPUUnmount + r.CPUKidsMount + r.CPUKidsUnm)
	r.AllocMount, r.AllocUnm, r.MallocsMount = s.med("alloc"), s.med("allocU"), s.med("mallocs")
}

func pcts(v []float64) (p50, p90, p99, p100 float64) {
	return benchdef.Pct(v, 50), benchdef.Pct(v, 90), benchdef.Pct(v, 99), benchdef.Pct(v, 100)
}

func (b *bench) mountCycle(s series, first bool) {
	d0, _ := b.ctl.Stats(false)
	a0 := b.api.Counts()
	stop := make(chan struct{})
	peak := b.peakGoroutines(stop)
	end := b.profile("mount")
	u0 := b.sys.Usage()
	lat, total := b.mountAll()
	u1 := b.sys.Usage()
	end()
	close(stop)
	b.r.GoroutPeak = max(b.r.GoroutPeak, <-peak)
	d1, _ := b.ctl.Stats(true)
	for p := range b.Flags.Pods {
		var begun, done int64
		for v := range b.Flags.Volumes {
			if t, ok := d1.Timeline[benchdef.VolID(p, v)]; ok {
				if begun == 0 || t.StageStart < begun {
					begun = t.StageStart
				}
				done = max(done, t.PubEnd)
			}
		}
		if done > 0 {
			s.add("first", benchdef.Ms(time.Unix(0, begun).Sub(b.starts[p])))
			s.add("done", benchdef.Ms(time.Unix(0, done).Sub(b.starts[p])))
		}
	}
	s.add("lat", lat...)
	s.add("total", total)
	s.add("cpuM", u1.CPU(u0))
	s.add("sysM", u1.Sys-u0.Sys)
	s.add("kidM", u1.Kids-u0.Kids)
	s.add("drvM", d1.CPU-d0.CPU)
	s.add("alloc", float64(u1.AllocBytes-u0.AllocBytes)/1e6)
	s.add("mallocs", float64(u1.Mallocs-u0.Mallocs))
	if first {
		b.r.Calls, b.r.Conns = benchdef.Diff(d0.Calls, d1.Calls), d1.Conns-d0.Conns
		b.r.APIReqs = benchdef.Diff(a0, b.api.Counts())
	}
}

func (b *bench) unmountCycle(s series, first bool) {
	d0, _ := b.ctl.Stats(false)
	end := b.profile("unmount")
	u0 := b.sys.Usage()
	lat, total, unstaged := b.unmountAll()
	u1 := b.sys.Usage()
	end()
	d1, _ := b.ctl.Stats(false)
	s.add("unm", lat...)
	s.add("unmTotal", total)
	s.add("unstTotal", unstaged)
	s.add("cpuU", u1.CPU(u0))
	s.add("sysU", u1.Sys-u0.Sys)
	s.add("kidU", u1.Kids-u0.Kids)
	s.add("drvU", d1.CPU-d0.CPU)
	s.add("allocU", float64(u1.AllocBytes-u0.AllocBytes)/1e6)
	if first {
		b.r.CallsUnm, b.r.ConnsUnm = benchdef.Diff(d0.Calls, d1.Calls), d1.Conns-d0.Conns
	}
}

// peakGoroutines samples the system's goroutines, without those in which the
// harness waits for pods.
func (b *bench) peakGoroutines(stop <-chan struct{}) <-chan int {
	out := make(chan int, 1)
	go func() {
		peak := 0
		t := time.NewTicker(10 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				peak = max(peak, b.sys.Goroutines()-int(b.waiting.Load()))
			case <-stop:
				out <- peak
				return
			}
		}
	}()
	return out
}

// settle is how long after a burst nothing is measured yet: what looks at its traces
// once does so within two seconds, and it wakes more threads than a minute of rest.
const settle = 3 * time.Second

// idler is a system with clients of the harness's own that hold on to what they
// asked with.
type idler interface {
	// Idle lets go of it: to close it later would wake the system.
	Idle()
}

func (b *bench) idle() {
	if s, ok := b.sys.(idler); ok {
		s.Idle()
	}
	time.Sleep(settle)
	r := &b.r
	if g := b.sys.Goroutines(); g > 0 {
		r.Goroutines = g
	}
	r.RSSIdle, _ = b.sys.RSS()
	d0, _ := b.ctl.Stats(false)
	end := b.profile("idle")
	u0 := b.sys.Usage()
	time.Sleep(b.Flags.Idle)
	u1 := b.sys.Usage()
	end()
	d1, _ := b.ctl.Stats(false)
	for _, n := range benchdef.Diff(d0.Calls, d1.Calls) {
		r.IdleDrvCalls += n
	}
	el := u1.At.Sub(u0.At).Seconds()
	r.IdleSecs = b.Flags.Idle.Seconds()
	r.IdleCPU = benchdef.Round(u1.CPU(u0) / el * 100)
	r.IdleAllocMBs = float64(u1.AllocBytes-u0.AllocBytes) / 1e6 / el
	r.IdleSwitches = benchdef.Round(float64(u1.Switches-u0.Switches) / el)
}

// restart: a new process finds what an earlier one mounted.
func (b *bench) restart(end func()) {
	r := &b.r
	if err := b.Known(b.ctx); err != nil {
		b.fail(err)
	}
	r.ReadyMs = benchdef.Ms(time.Since(b.T0))
	end()
	r.TotalMs = r.ReadyMs
	u := b.sys.Usage()
	r.CPUMount = benchdef.Round(u.User + u.Sys)
	r.CPU = r.CPUMount
	time.Sleep(2 * time.Second) // calls for volumes that are known already would show
	d, _ := b.ctl.Stats(false)
	delete(d.Calls, "registered")
	r.Calls, r.Conns = d.Calls, d.Conns
	b.unmountAll()
}

// profile begins a CPU profile if one is asked for, and returns its end.
func (b *bench) profile(name string) func() {
	dir := b.Flags.ProfileDir
	if dir == "" {
		return func() {}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		log.Fatal(err)
	}
	name = fmt.Sprintf("%s-%d.pb.gz", name, os.Getpid()) // of each repetition one
	f, err := os.Create(filepath.Join(dir, "cpu-"+name))
	if err != nil {
		log.Fatal(err)
	}
	runtime.SetCPUProfileRate(250) // as many as the kernel gives; StartCPUProfile complains and leaves it
	if err := pprof.StartCPUProfile(f); err != nil {
		return func() {} // the last cycle's goes on
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
		a, err := os.Create(filepath.Join(dir, "allocs-"+name))
		if err != nil {
			log.Fatal(err)
		}
		_ = pprof.Lookup("allocs").WriteTo(a, 0)
		a.Close()
	}
}
