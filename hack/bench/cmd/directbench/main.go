// directbench is the floor: the bare calls of the same work with no manager.
//
// csi: for each of pods x volumes, make the staging directory and the
// target's parent, NodeStage, NodePublish; then NodeUnpublish, NodeUnstage
// and remove the directories; C volumes at a time over one connection
// (--conn-per-call: a new connection for each call, as the kubelet does).
//
// intree: for each pod a configMap, a secret, an emptyDir and a projected
// volume, written as the kubelet lays them out (timestamped directory,
// ..data symlink, a tmpfs for secret and projected) with direct system calls.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

var (
	root     = flag.String("root", "", "root directory")
	sock     = flag.String("socket", "", "CSI socket")
	ctlSock  = flag.String("control-socket", "", "driver control socket")
	workload = flag.String("workload", "csi", "csi or intree")
	mode     = flag.String("mode", "", "label: the driver's mode")
	latency  = flag.Float64("latency-ms", 0, "label: the driver's latency")
	pods     = flag.Int("pods", 1, "pods")
	volumes  = flag.Int("volumes", 1, "volumes per pod")
	conc     = flag.Int("concurrency", 1, "volumes (csi) or pods (intree) at a time")
	perCall  = flag.Bool("conn-per-call", false, "a new connection for each call")
	rep      = flag.Int("rep", 0, "label")
	variant  = flag.String("variant", "", "label")
	iters    = flag.Int("iterations", 1, "repeat the whole cycle; latencies of all are pooled, totals are medians")
	out      = flag.String("out", "", "append the JSON line here")
)

type job struct{ p, v int }

func each(jobs []job, c int, f func(job) error) (errs int, first error) {
	ch := make(chan job)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := 0; i < c; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range ch {
				if err := f(j); err != nil {
					mu.Lock()
					errs++
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		}()
	}
	for _, j := range jobs {
		ch <- j
	}
	close(ch)
	wg.Wait()
	return
}

func dial() *grpc.ClientConn {
	c, err := grpc.NewClient("unix://"+*sock, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func main() {
	flag.Parse()
	ctl := benchdef.NewCtl(*ctlSock)
	var jobs []job
	vols := *volumes
	if *workload == "intree" {
		vols = 1
	}
	for p := 0; p < *pods; p++ {
		for v := 0; v < vols; v++ {
			jobs = append(jobs, job{p, v})
		}
	}
	pub := func(j job) string {
		return filepath.Join(*root, "pods", benchdef.PodUID(j.p), "volumes/kubernetes.io~csi", "pv-"+benchdef.VolID(j.p, j.v), "mount")
	}
	stg := func(j job) string {
		h := sha256.Sum256([]byte(benchdef.VolID(j.p, j.v)))
		return filepath.Join(*root, "plugins/kubernetes.io/csi", benchdef.DriverName, fmt.Sprintf("%x", h), "globalmount")
	}
	for _, d := range []string{"pods", "plugins/kubernetes.io/csi/" + benchdef.DriverName} {
		_ = os.MkdirAll(filepath.Join(*root, d), 0o750)
	}
	capab := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
	var shared csi.NodeClient
	if *workload == "csi" && !*perCall {
		conn := dial()
		defer conn.Close()
		shared = csi.NewNodeClient(conn)
		if _, err := shared.NodeGetCapabilities(context.Background(), &csi.NodeGetCapabilitiesRequest{}); err != nil {
			log.Fatal(err)
		}
	}
	node := func(f func(csi.NodeClient) error) error {
		if shared != nil {
			return f(shared)
		}
		conn := dial()
		defer conn.Close()
		return f(csi.NewNodeClient(conn))
	}
	ctx := context.Background()

	mount := func(j job) error {
		s, t := stg(j), pub(j)
		if err := os.MkdirAll(s, 0o750); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(t), 0o750); err != nil {
			return err
		}
		id := benchdef.VolID(j.p, j.v)
		if err := node(func(n csi.NodeClient) error {
			_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: s, VolumeCapability: capab})
			return err
		}); err != nil {
			return err
		}
		return node(func(n csi.NodeClient) error {
			_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: s, TargetPath: t, VolumeCapability: capab})
			return err
		})
	}
	unmount := func(j job) error {
		id, s, t := benchdef.VolID(j.p, j.v), stg(j), pub(j)
		if err := node(func(n csi.NodeClient) error {
			_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: t})
			return err
		}); err != nil {
			return err
		}
		if err := os.Remove(filepath.Dir(t)); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := node(func(n csi.NodeClient) error {
			_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: s})
			return err
		}); err != nil {
			return err
		}
		if err := os.Remove(s); err != nil && !os.IsNotExist(err) {
			return err
		}
		return os.Remove(filepath.Dir(s))
	}
	if *workload == "intree" {
		mount, unmount = intreeMount, intreeUnmount
	}

	r := benchdef.Result{
		System: "direct", Workload: *workload, Mode: *mode, Phase: "full", Rep: *rep, Variant: *variant, Pods: *pods, Volumes: *volumes, LatencyMs: *latency, Conc: *conc,
		StartedAt: time.Now().UTC().Format(time.RFC3339), LoadAvg: benchdef.LoadAvg(),
	}
	if *perCall {
		r.Variant = "conn-per-call"
	}
	r.RSSBase, _ = benchdef.RSS()
	var podLat, rpcLat, unmLat, unmRPC, totals, unmTotals []float64
	var scans []float64
	var cpuM, cpuMS, cpuU, drvM, drvU, alloc, mallocs []float64
	for it := 0; it < *iters; it++ {
		if it > 0 { // every cycle starts without pod directories, as every new pod does
			for _, d := range []string{"pods", "plugins"} {
				if err := os.RemoveAll(filepath.Join(*root, d)); err != nil {
					log.Fatal(err)
				}
			}
		}
		run := func(f func(job) error) (perPod []float64, perJob []float64, total float64, sn0, sn1 benchdef.Snap, d0, d1 benchdef.DriverStats) {
			var mu sync.Mutex
			last := make([]time.Duration, *pods)
			d0, _ = ctl.Stats(false)
			sn0 = benchdef.TakeSnap()
			t0 := time.Now()
			errs, first := each(jobs, *conc, func(j job) error {
				a := time.Now()
				err := f(j)
				b := time.Now()
				mu.Lock()
				perJob = append(perJob, benchdef.Ms(b.Sub(a)))
				if e := b.Sub(t0); e > last[j.p] {
					last[j.p] = e
				}
				mu.Unlock()
				return err
			})
			total = benchdef.Ms(time.Since(t0))
			sn1 = benchdef.TakeSnap()
			d1, _ = ctl.Stats(false)
			r.Errors += errs
			if first != nil && r.FirstErr == "" {
				r.FirstErr = first.Error()
			}
			for _, l := range last {
				perPod = append(perPod, benchdef.Ms(l))
			}
			return
		}
		pp, pj, tot, s0, s1, d0, d1 := run(mount)
		podLat, rpcLat, totals = append(podLat, pp...), append(rpcLat, pj...), append(totals, tot)
		cpuM, cpuMS, drvM = append(cpuM, s1.CPU(s0)), append(cpuMS, s1.Sys-s0.Sys), append(drvM, d1.CPU-d0.CPU)
		alloc, mallocs = append(alloc, float64(s1.AllocBytes-s0.AllocBytes)/1e6), append(mallocs, float64(s1.Mallocs-s0.Mallocs))
		if it == 0 && ctl != nil {
			r.Calls, r.Conns = benchdef.Diff(d0.Calls, d1.Calls), d1.Conns-d0.Conns
		}
		if *workload == "csi" {
			scans = append(scans, scan())
		}
		pp, pj, tot, s0, s1, d0, d1 = run(unmount)
		unmLat, unmRPC, unmTotals = append(unmLat, pp...), append(unmRPC, pj...), append(unmTotals, tot)
		cpuU, drvU = append(cpuU, s1.CPU(s0)), append(drvU, d1.CPU-d0.CPU)
		if it == 0 && ctl != nil {
			r.CallsUnm, r.ConnsUnm = benchdef.Diff(d0.Calls, d1.Calls), d1.Conns-d0.Conns
		}
	}
	n := float64(len(jobs))
	if *workload == "intree" {
		n *= 4
	}
	r.MountP50, r.MountP90, r.MountP99, r.MountMax = benchdef.Pct(podLat, 50), benchdef.Pct(podLat, 90), benchdef.Pct(podLat, 99), benchdef.Pct(podLat, 100)
	r.RPCP50, r.RPCP99 = benchdef.Pct(rpcLat, 50), benchdef.Pct(rpcLat, 99)
	r.TotalMs = benchdef.Median(totals)
	r.VolsPerSec = benchdef.Round(n / r.TotalMs * 1e3)
	r.UnmountP50, r.UnmountP90, r.UnmountP99, r.UnmountMax = benchdef.Pct(unmLat, 50), benchdef.Pct(unmLat, 90), benchdef.Pct(unmLat, 99), benchdef.Pct(unmLat, 100)
	r.UnmRPCP50 = benchdef.Pct(unmRPC, 50)
	r.UnmountTotalMs = benchdef.Median(unmTotals)
	r.UnstageTotalMs = r.UnmountTotalMs
	r.UnmountVolsPerS = benchdef.Round(n / r.UnmountTotalMs * 1e3)
	r.CPUMount, r.CPUMountSys, r.CPUUnmount = benchdef.Round(benchdef.Median(cpuM)), benchdef.Round(benchdef.Median(cpuMS)), benchdef.Round(benchdef.Median(cpuU))
	r.CPUDrvMount, r.CPUDrvUnm = benchdef.Round(benchdef.Median(drvM)), benchdef.Round(benchdef.Median(drvU))
	r.CPU = benchdef.Round(r.CPUMount + r.CPUUnmount)
	r.AllocMount, r.MallocsMount = benchdef.Round(benchdef.Median(alloc)), benchdef.Median(mallocs)
	r.ScanMs = benchdef.Round(benchdef.Median(scans))
	_, r.RSS = benchdef.RSS()
	if err := r.Emit(*out); err != nil {
		log.Fatal(err)
	}
	if r.Errors > 0 {
		log.Fatalf("%d errors, first: %s", r.Errors, r.FirstErr)
	}
}

// scan does the least that a restarted manager has to do to know what is mounted: find the
// volumes' directories and read the mount table once.
func scan() float64 {
	t := time.Now()
	found := map[string]bool{}
	base := filepath.Join(*root, "pods")
	dirs, _ := os.ReadDir(base)
	for _, p := range dirs {
		d := filepath.Join(base, p.Name(), "volumes/kubernetes.io~csi")
		vols, _ := os.ReadDir(d)
		for _, v := range vols {
			found[filepath.Join(d, v.Name(), "mount")] = false
		}
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range bytes.Split(b, []byte{'\n'}) {
		if f := bytes.Fields(l); len(f) > 4 {
			if _, ok := found[string(f[4])]; ok {
				found[string(f[4])] = true
			}
		}
	}
	n := 0
	for _, ok := range found {
		if ok {
			n++
		}
	}
	if want := *pods * *volumes; *mode == "bind" && n != want {
		log.Fatalf("scan found %d of %d", n, want)
	}
	return benchdef.Ms(time.Since(t))
}

// ---- in-tree floor ----

var intreeDirs = []string{"kubernetes.io~configmap/cm", "kubernetes.io~secret/sec", "kubernetes.io~empty-dir/empty", "kubernetes.io~projected/kube-api-access"}

func intreeMount(j job) error {
	base := filepath.Join(*root, "pods", benchdef.PodUID(j.p), "volumes")
	for i, d := range intreeDirs {
		p := filepath.Join(base, d)
		if err := os.MkdirAll(p, 0o750); err != nil {
			return err
		}
		if i == 1 || i == 3 {
			if err := syscall.Mount("tmpfs", p, "tmpfs", syscall.MS_NODEV, "size=64m"); err != nil {
				return err
			}
		}
		if i == 2 {
			if err := os.Chmod(p, 0o777); err != nil {
				return err
			}
			continue
		}
		files := map[string]int{"a": 100, "b": 100}
		if i == 3 {
			files = map[string]int{"token": 1000, "ca.crt": 1100, "namespace": 7}
		}
		if err := atomicWrite(p, files); err != nil {
			return err
		}
	}
	return nil
}

func atomicWrite(p string, files map[string]int) error {
	ts, err := os.MkdirTemp(p, "..2026_01_01_00_00_00.")
	if err != nil {
		return err
	}
	if err := os.Chmod(ts, 0o755); err != nil {
		return err
	}
	for f, n := range files {
		if err := os.WriteFile(filepath.Join(ts, f), make([]byte, n), 0o644); err != nil {
			return err
		}
	}
	if err := os.Symlink(filepath.Base(ts), filepath.Join(p, "..data_tmp")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(p, "..data_tmp"), filepath.Join(p, "..data")); err != nil {
		return err
	}
	for f := range files {
		if err := os.Symlink("..data/"+f, filepath.Join(p, f)); err != nil {
			return err
		}
	}
	return nil
}

func intreeUnmount(j job) error {
	base := filepath.Join(*root, "pods", benchdef.PodUID(j.p), "volumes")
	for i, d := range intreeDirs {
		p := filepath.Join(base, d)
		if i == 1 || i == 3 {
			if err := syscall.Unmount(p, 0); err != nil {
				return err
			}
			if err := os.Remove(p); err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(p); err != nil {
			return err
		}
	}
	return nil
}
