// volmgrbench runs csi-volmgr under the harness: embedded in this process as
// a library (--via=embedded), or as the daemon through its API (--via=daemon).
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/harness"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/objects"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	node "github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// chunk is how many objects one setup call applies.
const chunk = 250

func main() {
	f := harness.Register()
	via := flag.String("via", "embedded", "embedded or daemon")
	program := flag.String("program", "csi-volmgr", "the daemon's program (--via=daemon)")
	flag.Parse()
	pods, setup := work(f)
	t0 := time.Now() // the harness made the pods; in a restart csi-volmgr gets none
	var api *cluster
	if f.API != "" {
		api = &cluster{benchdef.NewCtl(f.APIControlSocket)}
	}
	if f.Phase == "restart" || api != nil {
		setup = nil // an earlier run applied and kept them, or the API server has them
	}
	var r harness.Run
	switch *via {
	case "embedded":
		e := &embedded{flags: f, pods: pods, setup: setup, api: api}
		r = harness.Run{Name: "volmgr", Start: e.start, Known: e.known, Stop: e.stop, Update: e.update}
	case "daemon":
		d := &daemon{flags: f, pods: pods, setup: setup, program: *program, api: api}
		r = harness.Run{Name: "daemon", Start: d.start, Known: d.known, Stop: d.stop, Update: d.update}
	default:
		log.Fatalf("--via=%s", *via)
	}
	r.Flags, r.T0 = f, t0
	r.Main(context.Background())
}

// work returns the pods of the workload, and the objects that they name.
func work(f *harness.Flags) (pods []*corev1.Pod, setup []k8sruntime.Object) {
	for _, o := range objects.Cluster() {
		switch o.(type) {
		case *storagev1.CSIDriver, *corev1.ConfigMap:
			setup = append(setup, o)
		}
	}
	for p := range f.Pods {
		pod, objs := objects.CSI(p, f.Volumes)
		if f.Workload == "intree" {
			pod, objs = objects.InTree(p, 0)
		}
		pods, setup = append(pods, pod), append(setup, objs...)
	}
	return pods, setup
}

// stateDir is where the journal of a root is kept.
func stateDir(root string) string { return filepath.Join(root, "state") }

// manifests encodes objects, several in a manifest, as `apply` takes them.
func manifests(objs []k8sruntime.Object) ([]server.Manifest, error) {
	var out []server.Manifest
	for len(objs) > 0 {
		n := min(chunk, len(objs))
		var buf bytes.Buffer
		for _, o := range objs[:n] {
			b, err := manifest.Encode(o)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&buf, "---\n%s\n", b)
		}
		out = append(out, server.Manifest{Name: "setup", Data: buf.Bytes()})
		objs = objs[n:]
	}
	return out, nil
}

// embedded is csi-volmgr as a library in this process.
type embedded struct {
	flags *harness.Flags
	pods  []*corev1.Pod
	setup []k8sruntime.Object
	api   *cluster // nil if pods are applied

	node   *node.Node
	cancel context.CancelFunc
	done   chan error
}

func (e *embedded) start(ctx context.Context) (_ harness.System, err error) {
	cfg := node.Config{
		Root: e.flags.Root, StateDir: stateDir(e.flags.Root), Name: objects.NodeName, RegistrationDir: e.flags.RegistrationDir,
		Logger: slog.New(slog.NewTextHandler(log.Writer(), nil)),
	}
	if e.api != nil {
		cfg.Cluster = &rest.Config{Host: e.flags.API, QPS: float32(e.flags.QPS), Burst: e.flags.Burst, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	} else if cfg.Tokens, err = signer(); err != nil {
		return nil, err
	}
	e.node, err = node.New(cfg)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(ctx)
	e.cancel, e.done = cancel, make(chan error, 1)
	go func() { e.done <- e.node.Run(run) }()
	ms, err := manifests(e.setup)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if _, err := e.node.Apply(ctx, m); err != nil {
			return nil, err
		}
	}
	e.setup = nil // so that it does not count as csi-volmgr's memory
	if e.flags.Phase == "restart" {
		return e, nil
	}
	if e.api != nil {
		if err := e.synced(ctx); err != nil {
			return nil, err
		}
	}
	if e.flags.Workload == "csi" {
		err = e.driverUp(ctx)
	}
	return e, err
}

// driverUp waits until the driver has registered.
func (e *embedded) driverUp(ctx context.Context) error {
	for {
		changed := e.node.Manager().Changed()
		for _, d := range e.node.Manager().Drivers() {
			if d.Name == benchdef.DriverName && d.Up {
				return nil
			}
		}
		select {
		case <-changed:
		case err := <-e.done:
			return fmt.Errorf("node ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *embedded) known(ctx context.Context) error {
	for _, pod := range e.pods {
		uid := state.PodUID(pod.UID)
		if err := e.node.Manager().WaitForAttachAndMount(ctx, uid); err != nil {
			return err
		}
		if n := len(e.node.Manager().GetMountedVolumesForPod(uid)); n != e.flags.Volumes {
			return fmt.Errorf("pod %s: %d volumes known as mounted", pod.Name, n)
		}
	}
	return e.synced(ctx)
}

// synced waits until every source has listed its objects.
func (e *embedded) synced(ctx context.Context) error {
	for {
		changed := e.node.Manager().Changed()
		if e.node.Manager().ReconcilerStatesHasBeenSynced() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *embedded) stop() error {
	e.cancel()
	return <-e.done
}

func (e *embedded) Mount(ctx context.Context, p int) error {
	if e.api != nil {
		if err := e.api.put(p); err != nil {
			return err
		}
		uid := state.PodUID(e.pods[p].UID)
		err := e.node.Manager().WaitForAttachAndMount(ctx, uid)
		return check(e.node.Manager().GetMountedVolumesForPod(uid), e.flags.Volumes, err)
	}
	mounted, err := e.node.MountPod(ctx, e.pods[p])
	return check(mounted, e.flags.Volumes, err)
}

func (e *embedded) update(ctx context.Context, p, gen int) error {
	if e.api != nil {
		return e.api.change(p, gen)
	}
	ms, err := manifests([]k8sruntime.Object{objects.ConfigMap(p, gen)})
	if err != nil {
		return err
	}
	_, err = e.node.Apply(ctx, ms[0])
	return err
}

func check(mounted map[string]manager.MountedVolume, want int, err error) error {
	if err == nil && len(mounted) != want {
		return fmt.Errorf("%d volumes mounted, want %d", len(mounted), want)
	}
	return err
}

func (e *embedded) Unmount(ctx context.Context, p int) error {
	if e.api != nil {
		if err := e.api.delete(p); err != nil {
			return err
		}
		return e.node.Manager().WaitForUnmount(ctx, state.PodUID(e.pods[p].UID))
	}
	return e.node.UnmountPod(ctx, e.pods[p])
}

func (e *embedded) Usage() benchdef.Snap     { return benchdef.TakeSnap() }
func (e *embedded) RSS() (now, peak float64) { return benchdef.RSS() }
func (e *embedded) ResetRSS()                { benchdef.ResetPeakRSS() }
func (e *embedded) Goroutines() int          { return runtime.NumGoroutine() }
