package main

import (
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/volume/util"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/objects"
)

type profile struct{ f *os.File }

func startProfile(name string) *profile {
	if *profDir == "" {
		return &profile{}
	}
	f, err := os.Create(filepath.Join(*profDir, "cpu-"+name+".pb.gz"))
	if err != nil {
		log.Fatal(err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		log.Fatal(err)
	}
	return &profile{f}
}

func (p *profile) stop(name string) {
	if p.f == nil {
		return
	}
	pprof.StopCPUProfile()
	p.f.Close()
	for _, k := range []string{"mutex", "block", "allocs"} {
		f, err := os.Create(filepath.Join(*profDir, k+"-"+name+".pb.gz"))
		if err != nil {
			log.Fatal(err)
		}
		_ = pprof.Lookup(k).WriteTo(f, 0)
		f.Close()
	}
}

// full runs the iterations: mount, idle, unmount.
func (b *bench) full() {
	r := &b.r
	var lat, unm, first, done, totals, unmTotals, unstTotals []float64
	var cpuM, cpuMS, cpuU, cpuUS, kidM, kidU, drvM, drvU, alloc, allocU, mallocs []float64
	apiCtl := benchdef.NewCtl(*apiCtl)
	for it := 0; it < *iters; it++ {
		if it > 0 {
			time.Sleep(300*time.Millisecond + time.Duration(rand.Intn(300))*time.Millisecond)
			_ = b.ctl.Reset()
			for _, p := range b.pods {
				// The kubelet's housekeeping would have removed these directories.
				if err := os.RemoveAll(filepath.Join(*root, "pods", string(p.UID))); err != nil {
					log.Fatal(err)
				}
				b.state.set(p.UID, false)
			}
		}
		a0 := apiCtl.Counts()
		d0, _ := b.ctl.Stats(false)
		stop := make(chan struct{})
		peak := benchdef.PeakGoroutines(stop)
		pr := startProfile("mount")
		s0 := benchdef.TakeSnap()
		l, tot := b.mountAll()
		s1 := benchdef.TakeSnap()
		pr.stop("mount")
		close(stop)
		r.GoroutPeak = max(r.GoroutPeak, <-peak)
		d1, _ := b.ctl.Stats(true)
		for i := range b.pods {
			var f, e int64
			for v := 0; v < *volumes; v++ {
				if t, ok := d1.Timeline[benchdef.VolID(i, v)]; ok {
					if f == 0 || t.StageStart < f {
						f = t.StageStart
					}
					e = max(e, t.PubEnd)
				}
			}
			if e > 0 {
				first = append(first, benchdef.Ms(time.Unix(0, f).Sub(b.starts[i])))
				done = append(done, benchdef.Ms(time.Unix(0, e).Sub(b.starts[i])))
			}
		}
		lat, totals = append(lat, l...), append(totals, tot)
		cpuM, cpuMS, kidM = append(cpuM, s1.CPU(s0)), append(cpuMS, s1.Sys-s0.Sys), append(kidM, s1.Kids-s0.Kids)
		drvM = append(drvM, d1.CPU-d0.CPU)
		alloc, mallocs = append(alloc, float64(s1.AllocBytes-s0.AllocBytes)/1e6), append(mallocs, float64(s1.Mallocs-s0.Mallocs))
		if it == 0 {
			r.Calls, r.Conns = benchdef.Diff(d0.Calls, d1.Calls), d1.Conns-d0.Conns
			if apiCtl != nil {
				r.APIReqs = benchdef.Diff(a0, apiCtl.Counts())
			}
			if *idle > 0 || *idleSync > 0 {
				b.idle()
			}
		}

		d0, _ = b.ctl.Stats(false)
		pr = startProfile("unmount")
		s0 = benchdef.TakeSnap()
		l, tot, un := b.unmountAll()
		s1 = benchdef.TakeSnap()
		pr.stop("unmount")
		d1, _ = b.ctl.Stats(false)
		unm, unmTotals, unstTotals = append(unm, l...), append(unmTotals, tot), append(unstTotals, un)
		cpuU, cpuUS, kidU = append(cpuU, s1.CPU(s0)), append(cpuUS, s1.Sys-s0.Sys), append(kidU, s1.Kids-s0.Kids)
		drvU, allocU = append(drvU, d1.CPU-d0.CPU), append(allocU, float64(s1.AllocBytes-s0.AllocBytes)/1e6)
		if it == 0 {
			r.CallsUnm, r.ConnsUnm = benchdef.Diff(d0.Calls, d1.Calls), d1.Conns-d0.Conns
		}
	}
	md := func(v []float64) float64 { return benchdef.Round(benchdef.Median(v)) }
	n := float64(*pods * r.Volumes)
	r.MountP50, r.MountP90, r.MountP99, r.MountMax = benchdef.Pct(lat, 50), benchdef.Pct(lat, 90), benchdef.Pct(lat, 99), benchdef.Pct(lat, 100)
	r.TotalMs = md(totals)
	r.VolsPerSec = benchdef.Round(n / r.TotalMs * 1e3)
	r.DrvStartP50, r.DrvDoneP50, r.DrvDoneP99, r.DrvDoneMax = benchdef.Pct(first, 50), benchdef.Pct(done, 50), benchdef.Pct(done, 99), benchdef.Pct(done, 100)
	r.UnmountP50, r.UnmountP90, r.UnmountP99, r.UnmountMax = benchdef.Pct(unm, 50), benchdef.Pct(unm, 90), benchdef.Pct(unm, 99), benchdef.Pct(unm, 100)
	r.UnmountTotalMs, r.UnstageTotalMs = md(unmTotals), md(unstTotals)
	r.UnmountVolsPerS = benchdef.Round(n / r.UnstageTotalMs * 1e3)
	r.CPUMount, r.CPUMountSys, r.CPUUnmount, r.CPUUnmSys = md(cpuM), md(cpuMS), md(cpuU), md(cpuUS)
	r.CPUKidsMount, r.CPUKidsUnm, r.CPUDrvMount, r.CPUDrvUnm = md(kidM), md(kidU), md(drvM), md(drvU)
	r.CPU = benchdef.Round(r.CPUMount + r.CPUUnmount + r.CPUKidsMount + r.CPUKidsUnm)
	r.AllocMount, r.AllocUnm, r.MallocsMount = md(alloc), md(allocU), md(mallocs)
}

func (b *bench) resync(stop <-chan struct{}) {
	for _, pod := range b.pods {
		go func() {
			t := time.NewTimer(time.Duration(rand.Float64() * 1.25 * float64(*syncFreq)))
			defer t.Stop()
			for {
				select {
				case <-stop:
					return
				case <-t.C:
				}
				if err := b.syncPod(pod); err != nil && b.ctx.Err() == nil {
					b.fail(fmt.Errorf("resync %s: %w", pod.Name, err))
				}
				t.Reset(wait.Jitter(*syncFreq, 0.5))
			}
		}()
	}
}

func (b *bench) idle() {
	r := &b.r
	time.Sleep(2 * time.Second)
	measure := func(d time.Duration, name string) (pct, mbs float64, calls int64) {
		d0, _ := b.ctl.Stats(false)
		pr := startProfile(name)
		s0 := benchdef.TakeSnap()
		time.Sleep(d)
		s1 := benchdef.TakeSnap()
		pr.stop(name)
		d1, _ := b.ctl.Stats(false)
		for _, n := range benchdef.Diff(d0.Calls, d1.Calls) {
			calls += n
		}
		el := s1.At.Sub(s0.At).Seconds()
		return benchdef.Round(s1.CPU(s0) / el * 100), benchdef.Round(float64(s1.AllocBytes-s0.AllocBytes) / 1e6 / el), calls
	}
	r.Goroutines = runtime.NumGoroutine()
	r.RSSIdle, _ = benchdef.RSS()
	if *idle > 0 {
		r.IdleSecs = idle.Seconds()
		r.IdleCPU, r.IdleAllocMBs, r.IdleDrvCalls = measure(*idle, "idle")
	}
	if *idleSync > 0 {
		stop := make(chan struct{})
		b.resync(stop)
		r.IdleResyncCPU, _, _ = measure(*idleSync, "idle-resync")
		close(stop)
	}
}

// restart measures how a fresh manager finds on disk the volumes of an earlier one.
func (b *bench) restart(t0 time.Time, registered <-chan time.Time, run func()) {
	r := &b.r
	s0 := benchdef.TakeSnap()
	pr := startProfile("restart")
	for _, p := range b.pods {
		b.pm.AddPod(p)
	}
	run()
	synced := make(chan time.Time, 1)
	go func() {
		for !b.vm.ReconcilerStatesHasBeenSynced() {
			time.Sleep(time.Millisecond)
		}
		synced <- time.Now()
	}()
	lat := make([]float64, len(b.pods))
	var wg sync.WaitGroup
	for i, pod := range b.pods {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := b.syncPod(pod); err != nil {
				b.fail(err)
			}
			lat[i] = benchdef.Ms(time.Since(t0))
			if n := len(b.vm.GetMountedVolumesForPod(util.GetUniquePodName(pod))); n != r.Volumes {
				b.fail(fmt.Errorf("%s: %d volumes known mounted", pod.Name, n))
			}
		}()
	}
	wg.Wait()
	r.ReadyMs = benchdef.Ms(time.Since(t0))
	s1 := benchdef.TakeSnap()
	pr.stop("restart")
	r.SyncedMs = benchdef.Ms((<-synced).Sub(t0))
	if *workload == "csi" {
		r.RegisteredMs = benchdef.Ms((<-registered).Sub(t0))
	}
	r.MountP50, r.MountP90, r.MountP99, r.MountMax = benchdef.Pct(lat, 50), benchdef.Pct(lat, 90), benchdef.Pct(lat, 99), benchdef.Pct(lat, 100)
	r.TotalMs = r.ReadyMs
	r.CPUMount, r.CPUKidsMount = s1.CPU(s0), benchdef.Round(s1.Kids-s0.Kids)
	r.CPU = benchdef.Round(r.CPUMount + r.CPUKidsMount)
	r.AllocMount = benchdef.Round(float64(s1.AllocBytes-s0.AllocBytes) / 1e6)
	time.Sleep(2 * time.Second) // to see calls for volumes that were already reported
	d, _ := b.ctl.Stats(false)
	delete(d.Calls, "registered")
	r.Calls, r.Conns = d.Calls, d.Conns
	_, r.RSS = benchdef.RSS()
	if err := r.Emit(*out); err != nil {
		log.Fatal(err)
	}
	b.unmountAll()
	if r.Errors > 0 {
		log.Fatalf("%d errors, first: %s", r.Errors, r.FirstErr)
	}
}

// propagate measures how long a changed configMap takes to reach the file: after a pod sync
// right after the change, and with only the kubelet's periodic syncs.
func (b *bench) propagate() {
	r := &b.r
	c, err := clientset.NewForConfig(restConfig(-1, 0))
	if err != nil {
		log.Fatal(err)
	}
	file := func(p int) string {
		return filepath.Join(*root, "pods", benchdef.PodUID(p), "volumes/kubernetes.io~configmap/cm/a")
	}
	update := func(p, gen int) {
		if _, err := c.CoreV1().ConfigMaps(objects.Namespace).Update(context.Background(), objects.ConfigMap(p, gen), metav1.UpdateOptions{}); err != nil {
			b.fail(err)
		}
	}
	waitFor := func(p, gen int, every time.Duration, limit time.Duration) bool {
		want := fmt.Sprintf("gen-%d", gen)
		for d := time.Now().Add(limit); time.Now().Before(d); time.Sleep(every) {
			if s, _ := os.ReadFile(file(p)); strings.TrimSpace(string(s)) == want {
				return true
			}
		}
		return false
	}
	// A pod at a time: change, let the watch deliver it, sync, wait.
	var one []float64
	for i := 0; i < 40 && i < len(b.pods); i++ {
		update(i, 1)
		time.Sleep(100*time.Millisecond + time.Duration(rand.Intn(300))*time.Millisecond)
		t := time.Now()
		if err := b.syncPod(b.pods[i]); err != nil {
			b.fail(err)
		}
		if !waitFor(i, 1, 500*time.Microsecond, 30*time.Second) {
			b.fail(fmt.Errorf("pod %d never saw generation 1", i))
		}
		one = append(one, benchdef.Ms(time.Since(t)))
	}
	r.UpdSyncP50, r.UpdSyncP99 = benchdef.Pct(one, 50), benchdef.Pct(one, 99)
	// All at once, periodic syncs only. They have been running for a while.
	stop := make(chan struct{})
	b.resync(stop)
	time.Sleep(wait.Jitter(*syncFreq, 0.5) + *syncFreq/2)
	s0 := benchdef.TakeSnap()
	nat := make([]float64, len(b.pods))
	var wg sync.WaitGroup
	for i := range b.pods {
		t := time.Now()
		update(i, 2)
		wg.Add(1)
		go func() {
			defer wg.Done()
			if !waitFor(i, 2, 100*time.Millisecond, 4**syncFreq) {
				b.fail(fmt.Errorf("pod %d never saw generation 2", i))
			}
			nat[i] = benchdef.Ms(time.Since(t))
		}()
	}
	wg.Wait()
	close(stop)
	r.UpdCPU = benchdef.TakeSnap().CPU(s0)
	r.UpdNaturalP50, r.UpdNaturalP99, r.UpdNaturalMax = benchdef.Pct(nat, 50), benchdef.Pct(nat, 99), benchdef.Pct(nat, 100)
	b.unmountAll()
}
