// kubeletbench runs the real volume manager of k8s.io/kubernetes: its
// volumemanager, reconciler, populator, operation executor, all volume
// plugins the kubelet links, its plugin manager for driver registration, its
// watch-based secret and configMap managers and its token manager, with a
// real mounter, against benchdriver and an API (in-process fake clientset, or
// fakeapi over HTTPS with the kubelet's client limits).
//
// Each pod has a goroutine, like a pod worker in the kubelet, that calls
// WaitForAttachAndMount and later WaitForUnmount.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/configmap"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/secret"
	"k8s.io/kubernetes/pkg/kubelet/token"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume"
	vconfigmap "k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/fc"
	"k8s.io/kubernetes/pkg/volume/git_repo"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/image"
	"k8s.io/kubernetes/pkg/volume/iscsi"
	"k8s.io/kubernetes/pkg/volume/local"
	"k8s.io/kubernetes/pkg/volume/nfs"
	"k8s.io/kubernetes/pkg/volume/projected"
	vsecret "k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"
	"k8s.io/mount-utils"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/objects"
)

var (
	root     = flag.String("root", "", "kubelet root directory")
	regDir   = flag.String("registration-dir", "", "plugin registration directory (watched)")
	ctlSock  = flag.String("control-socket", "", "driver control socket")
	workload = flag.String("workload", "csi", "csi or intree")
	phase    = flag.String("phase", "full", "full, mount (leave mounted), restart, propagate")
	mode     = flag.String("mode", "", "label: the driver's mode")
	latency  = flag.Float64("latency-ms", 0, "label: the driver's latency")
	pods     = flag.Int("pods", 1, "pods")
	volumes  = flag.Int("volumes", 1, "volumes per pod (csi)")
	rep      = flag.Int("rep", 0, "label")
	variant  = flag.String("variant", "", "label")
	iters    = flag.Int("iterations", 1, "repeat mount+unmount; latencies pooled, totals medians")
	idle     = flag.Duration("idle", 0, "measure CPU this long with everything mounted")
	idleSync = flag.Duration("idle-resync", 0, "the same with the periodic pod syncs of the kubelet")
	syncFreq = flag.Duration("sync-frequency", time.Minute, "kubelet syncFrequency (jittered by up to half, as pod workers do)")
	api      = flag.String("api", "fake", "fake (in-process clientset) or the URL of fakeapi")
	apiCtl   = flag.String("api-control-socket", "", "fakeapi control socket")
	qps      = flag.Float64("qps", 50, "client QPS with an API URL (kubelet default 50; -1: no limit)")
	burst    = flag.Int("burst", 100, "client burst (kubelet default 100)")
	rate     = flag.Float64("arrival-rate", 0, "pods per second (0: all at once)")
	profDir  = flag.String("profile-dir", "", "write CPU, mutex and block profiles here")
	out      = flag.String("out", "", "append the JSON line here")
)

type podState struct {
	sync.RWMutex
	gone map[types.UID]bool
}

func (p *podState) is(u types.UID) bool {
	p.RLock()
	defer p.RUnlock()
	return p.gone[u]
}
func (p *podState) ShouldPodContainersBeTerminating(u types.UID) bool { return p.is(u) }
func (p *podState) ShouldPodRuntimeBeRemoved(u types.UID) bool        { return p.is(u) }
func (p *podState) set(u types.UID, v bool) {
	p.Lock()
	p.gone[u] = v
	p.Unlock()
}

func plugins() (l []volume.VolumePlugin) {
	l = append(l, emptydir.ProbeVolumePlugins()...)
	l = append(l, git_repo.ProbeVolumePlugins()...)
	l = append(l, hostpath.ProbeVolumePlugins(volume.VolumeConfig{})...)
	l = append(l, nfs.ProbeVolumePlugins(volume.VolumeConfig{})...)
	l = append(l, vsecret.ProbeVolumePlugins()...)
	l = append(l, iscsi.ProbeVolumePlugins()...)
	l = append(l, downwardapi.ProbeVolumePlugins()...)
	l = append(l, fc.ProbeVolumePlugins()...)
	l = append(l, vconfigmap.ProbeVolumePlugins()...)
	l = append(l, projected.ProbeVolumePlugins()...)
	l = append(l, local.ProbeVolumePlugins()...)
	l = append(l, csi.ProbeVolumePlugins()...)
	if utilfeature.DefaultFeatureGate.Enabled(features.ImageVolume) {
		l = append(l, image.ProbeVolumePlugins()...)
	}
	return l
}

type bench struct {
	ctx    context.Context
	vm     volumemanager.VolumeManager
	pm     kubepod.Manager
	state  *podState
	h      *host
	pods   []*v1.Pod
	ctl    *benchdef.Ctl
	r      benchdef.Result
	starts []time.Time
	mu     sync.Mutex
}

func (b *bench) fail(err error) {
	b.mu.Lock()
	b.r.Errors++
	if b.r.FirstErr == "" {
		b.r.FirstErr = err.Error()
	}
	b.mu.Unlock()
}

// syncPod is the part of the kubelet's syncPod that concerns volumes.
func (b *bench) syncPod(pod *v1.Pod) error {
	if *workload == "intree" {
		b.h.secrets.RegisterPod(pod)
		b.h.configMaps.RegisterPod(pod)
	}
	return b.vm.WaitForAttachAndMount(b.ctx, pod)
}

func client() (clientset.Interface, []apiruntime.Object) {
	var objs []apiruntime.Object
	if *api == "fake" {
		objs = append(objs, objects.Cluster()...)
		for p := 0; p < *pods; p++ {
			if *workload == "intree" {
				_, l := objects.InTree(p, 0)
				objs = append(objs, l...)
			} else {
				_, l := objects.CSI(p, *volumes)
				objs = append(objs, l...)
			}
		}
		c := fake.NewSimpleClientset(objs...)
		// The fake keeps every call that it got: clear them, or the harness distorts the numbers.
		go wait.Forever(c.ClearActions, 500*time.Millisecond)
		return c, objs
	}
	c, err := clientset.NewForConfig(restConfig(float32(*qps), *burst))
	if err != nil {
		log.Fatal(err)
	}
	return c, nil
}

func restConfig(q float32, b int) *rest.Config {
	return &rest.Config{
		Host: *api, QPS: q, Burst: b, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json", ContentType: "application/vnd.kubernetes.protobuf"},
	}
}

func main() {
	t0 := time.Now()
	klog.InitFlags(nil)
	flag.Parse()
	if *profDir != "" {
		runtime.SetMutexProfileFraction(5)
		runtime.SetBlockProfileRate(10000)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	b := &bench{ctx: ctx, state: &podState{gone: map[types.UID]bool{}}, ctl: benchdef.NewCtl(*ctlSock)}
	r := &b.r
	*r = benchdef.Result{
		System: "kubelet", Workload: *workload, Mode: *mode, Phase: *phase, Variant: *variant, Rep: *rep, Pods: *pods, Volumes: *volumes, LatencyMs: *latency,
		StartedAt: t0.UTC().Format(time.RFC3339), LoadAvg: benchdef.LoadAvg(),
	}
	if *workload == "intree" {
		r.Volumes = 4
	}
	for p := 0; p < *pods; p++ {
		var pod *v1.Pod
		if *workload == "intree" {
			pod, _ = objects.InTree(p, 0)
		} else {
			pod, _ = objects.CSI(p, *volumes)
		}
		b.pods = append(b.pods, pod)
	}
	for _, d := range []string{"pods", "plugins"} {
		if err := os.MkdirAll(filepath.Join(*root, d), 0o750); err != nil {
			log.Fatal(err)
		}
	}

	c, _ := client()
	mounter := mount.New("")
	recorder := &record.FakeRecorder{}
	factory := informers.NewSharedInformerFactory(c, 0)
	inf := factory.Storage().V1().CSIDrivers()
	h := &host{
		root: *root, client: c, mounter: mounter, hu: hostutil.NewHostUtil(), subpather: subpath.New(mounter), recorder: recorder,
		factory: factory, lister: inf.Lister(), synced: inf.Informer().HasSynced, tokens: token.NewManager(c),
	}
	if *api == "fake" {
		h.secrets, h.configMaps = secret.NewSimpleSecretManager(c), configmap.NewSimpleConfigMapManager(c)
	} else {
		h.secrets, h.configMaps = secret.NewWatchingSecretManager(c, *syncFreq), configmap.NewWatchingConfigMapManager(c, *syncFreq)
	}
	for _, o := range objects.Cluster() {
		if n, ok := o.(*v1.Node); ok {
			h.node = n
		}
	}
	b.h = h
	if err := h.mgr.InitPlugins(plugins(), nil, h); err != nil {
		log.Fatal(err)
	}
	b.pm = kubepod.NewBasicPodManager()
	b.vm = volumemanager.NewVolumeManager(true, types.NodeName(objects.NodeName), b.pm, b.state, c, &h.mgr, mounter, h.hu, h.GetPodsDir(), recorder,
		volumepathhandler.NewBlockVolumePathHandler(), noHealth{}, time.Minute)
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })

	pmgr := pluginmanager.NewPluginManager(*regDir, recorder)
	pmgr.AddHandler(registerapi.CSIPlugin, csi.PluginHandler)
	if err := b.ctl.Reset(); err != nil {
		log.Fatal(err)
	}
	registered := make(chan time.Time, 1)
	go func() { // the driver counts the kubelet's notification
		for b.ctl != nil {
			if s, err := b.ctl.Stats(false); err == nil && s.Calls["registered"] > 0 {
				registered <- time.Now()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		registered <- time.Now()
	}()
	if *phase == "restart" {
		b.restart(t0, registered, func() {
			go pmgr.Run(ctx, ready, ctx.Done())
			go b.vm.Run(ctx, ready)
		})
		return
	}
	go pmgr.Run(ctx, ready, ctx.Done())
	go b.vm.Run(ctx, ready)
	if *workload == "csi" {
		<-registered
	}
	for !b.vm.ReconcilerStatesHasBeenSynced() || !h.synced() {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	_ = b.ctl.Reset()
	r.RSSBase, _ = benchdef.RSS()
	benchdef.ResetPeakRSS()
	switch *phase {
	case "full":
		b.full()
	case "mount":
		lat, total := b.mountAll()
		r.MountP50, r.TotalMs = benchdef.Pct(lat, 50), total
	case "propagate":
		b.mountAll()
		b.propagate()
	default:
		log.Fatal("phase?")
	}
	_, r.RSS = benchdef.RSS()
	if err := r.Emit(*out); err != nil {
		log.Fatal(err)
	}
	if r.Errors > 0 {
		log.Fatalf("%d errors, first: %s", r.Errors, r.FirstErr)
	}
}

func (b *bench) mountAll() (lat []float64, total float64) {
	lat = make([]float64, len(b.pods))
	var wg sync.WaitGroup
	t0 := time.Now()
	b.starts = make([]time.Time, len(b.pods))
	for i, pod := range b.pods {
		if *rate > 0 {
			time.Sleep(time.Until(t0.Add(time.Duration(float64(i) / *rate * float64(time.Second)))))
		}
		b.starts[i] = time.Now()
		b.pm.AddPod(pod)
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := b.syncPod(pod); err != nil {
				b.fail(fmt.Errorf("mount %s: %w", pod.Name, err))
			}
			lat[i] = benchdef.Ms(time.Since(b.starts[i]))
		}()
	}
	wg.Wait()
	return lat, benchdef.Ms(time.Since(t0))
}

func (b *bench) unmountAll() (lat []float64, total, unstaged float64) {
	lat = make([]float64, len(b.pods))
	var wg sync.WaitGroup
	t0 := time.Now()
	for i, pod := range b.pods {
		st := time.Now()
		b.state.set(pod.UID, true)
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := b.vm.WaitForUnmount(b.ctx, pod); err != nil {
				b.fail(fmt.Errorf("unmount %s: %w", pod.Name, err))
			}
			lat[i] = benchdef.Ms(time.Since(st))
			b.pm.RemovePod(pod)
			if *workload == "intree" {
				b.h.secrets.UnregisterPod(pod)
				b.h.configMaps.UnregisterPod(pod)
			}
		}()
	}
	wg.Wait()
	total = benchdef.Ms(time.Since(t0))
	if *workload != "csi" || b.ctl == nil {
		return lat, total, total
	}
	for d := time.Now().Add(5 * time.Minute); time.Now().Before(d); time.Sleep(50 * time.Millisecond) {
		if s, err := b.ctl.Stats(false); err == nil && s.Staged == 0 {
			break
		}
	}
	s, _ := b.ctl.Stats(true)
	var last int64
	for _, l := range s.Timeline {
		last = max(last, l.UnstageEnd)
	}
	return lat, total, benchdef.Ms(time.Unix(0, last).Sub(t0))
}
