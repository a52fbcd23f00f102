package harness

import (
	"fmt"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

func (b *bench) mountAll() ([]float64, float64) {
	lat, t0 := b.each("mount", b.sys.Mount)
	return lat, benchdef.Ms(time.Since(t0))
}

// unmountAll also returns how long the driver took to unstage the last volume.
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

// series collects one number per cycle.
type series map[string][]float64

func (s series) add(name string, v ...float64) { s[name] = append(s[name], v...) }

func (s series) med(name string) float64 { return benchdef.Round(benchdef.Median(s[name])) }

func (b *bench) full() {
	s := series{}
	for it := range b.Flags.Iterations {
		if it > 0 {
			time.Sleep(100*time.Millisecond + time.Duration(rand.Intn(100))*time.Millisecond)
			_ = b.ctl.Reset()
			_ = os.RemoveAll(filepath.Join(b.Flags.Root, "pods")) // every cycle starts without, as in the other programs
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

// peakGoroutines samples the number of the system's goroutines, without those in which the
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

// settle is the pause between a burst and the measurement of rest: one-time cleanup after a
// burst happens within two seconds, and wakes more threads than a minute of rest.
const settle = 3 * time.Second

// idler is a system whose clients, which the harness made, keep resources such as connections.
type idler interface {
	// Idle releases them: releasing them later would wake the system.
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

// restart measures how a new process finds what an earlier one mounted.
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
	time.Sleep(2 * time.Second) // so that calls for volumes that are already known would be seen
	d, _ := b.ctl.Stats(false)
	delete(d.Calls, "registered")
	r.Calls, r.Conns = d.Calls, d.Conns
	b.unmountAll()
}

// profile begins a CPU profile if one is asked for, and returns a function that ends it.
func (b *bench) profile(name string) func() {
	dir := b.Flags.ProfileDir
	if dir == "" {
		return func() {}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		log.Fatal(err)
	}
	name = fmt.Sprintf("%s-%d.pb.gz", name, os.Getpid()) // one for each repetition
	f, err := os.Create(filepath.Join(dir, "cpu-"+name))
	if err != nil {
		log.Fatal(err)
	}
	runtime.SetCPUProfileRate(250) // the kernel's most; StartCPUProfile complains and keeps it
	if err := pprof.StartCPUProfile(f); err != nil {
		return func() {} // the last cycle's profile goes on
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
