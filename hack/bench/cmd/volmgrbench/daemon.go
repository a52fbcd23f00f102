package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/harness"
	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/objects"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// callers is how many pods are applied or deleted at once.
	callers = 32
	// maxWaits is the largest number of pods for which each wait is a request of its own;
	// the daemon serves 128 streams, and one watch follows more pods.
	maxWaits = 64
	// patience is longer than any run.
	patience = 10 * time.Minute
)

// daemon is csi-volmgr as the program that a node runs, used through its API: a request
// applies each pod, and another one waits for it, or one watch follows all pods.
type daemon struct {
	flags   *harness.Flags
	pods    []*corev1.Pod
	setup   []k8sruntime.Object
	program string
	api     *cluster // nil if pods are applied

	cmd    *exec.Cmd
	client *client.Client
	turns  chan struct{}
	docs   []server.Manifest // of the pods
	meter  *benchdef.Meter

	mu    sync.Mutex
	stand map[state.PodUID]*standing // guarded by mu
	watch context.CancelFunc
	ended chan error // of the watch
}

// standing is the last state of a pod in the watch.
type standing struct {
	mounted, gone bool
	changed       chan struct{}
}

func (d *daemon) start(ctx context.Context) (harness.System, error) {
	d.turns = make(chan struct{}, callers)
	socket := filepath.Join(d.flags.Root, "api.sock")
	if err := os.MkdirAll(d.flags.Root, 0o750); err != nil {
		return nil, err
	}
	args := []string{
		"run", "--root-dir=" + d.flags.Root, "--state-dir=" + stateDir(d.flags.Root),
		"--socket=" + socket, "--registration-dir=" + d.flags.RegistrationDir, "--node-name=" + objects.NodeName, "--http-address=off",
	}
	more, err := d.more()
	if err != nil {
		return nil, err
	}
	d.cmd = exec.Command(d.program, append(args, more...)...)
	d.cmd.Stderr = log.Writer()
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.meter = benchdef.NewMeter(d.cmd.Process.Pid)
	d.client = client.New(socket)
	for { // no event announces a socket that does not exist yet
		if _, err := d.client.Version(ctx); err == nil {
			break
		} else if !errors.Is(err, client.ErrNoDaemon) || time.Since(d.meter.Began) > patience {
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	ms, err := manifests(d.setup)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		if _, err := d.client.Apply(ctx, m); err != nil {
			return nil, err
		}
	}
	if d.flags.Phase == "restart" { // no pod is applied; encoding them would slow the measured start
		return d, nil
	}
	for _, pod := range d.pods {
		ms, err := manifests([]k8sruntime.Object{pod})
		if err != nil {
			return nil, err
		}
		d.docs = append(d.docs, ms...)
	}
	if len(d.pods) > maxWaits {
		d.follow(ctx)
	}
	if d.flags.Workload != "csi" {
		return d, nil
	}
	return d, d.driverUp(ctx)
}

// more returns the daemon's arguments for the parts of a cluster that the work needs.
func (d *daemon) more() ([]string, error) {
	if d.api != nil {
		file, err := kubeconfig(d.flags)
		return []string{"--kubeconfig=" + file}, err
	}
	file, err := tokenKey(d.flags.Root)
	return []string{"--token-signing-key=" + file, "--token-issuer=https://bench.example.com"}, err
}

func (d *daemon) update(ctx context.Context, p, gen int) error {
	if d.api != nil {
		return d.api.change(p, gen)
	}
	ms, err := manifests([]k8sruntime.Object{objects.ConfigMap(p, gen)})
	if err != nil {
		return err
	}
	_, err = d.client.Apply(ctx, ms[0])
	return err
}

var errUp = errors.New("up")

func (d *daemon) driverUp(ctx context.Context) error {
	err := d.client.WatchDrivers(ctx, func(e server.Event[server.DriverStatus]) error {
		if e.Item.Name == benchdef.DriverName && e.Item.Up {
			return errUp
		}
		return nil
	})
	if errors.Is(err, errUp) {
		return nil
	}
	return fmt.Errorf("wait for the driver: %w", err)
}

// follow watches all pods.
func (d *daemon) follow(ctx context.Context) {
	d.stand, d.ended = map[state.PodUID]*standing{}, make(chan error, 1)
	for _, p := range d.pods {
		d.stand[state.PodUID(p.UID)] = &standing{gone: true, changed: make(chan struct{})}
	}
	ctx, d.watch = context.WithCancel(ctx)
	go func() {
		d.ended <- d.client.WatchPods(ctx, func(e server.Event[server.PodStatus]) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			s := d.stand[e.Item.Pod.UID]
			if s == nil {
				return nil
			}
			s.mounted = e.Type == "set" && e.Item.Listed && e.Item.Ready
			s.gone = e.Type == "gone" || !e.Item.Listed && unmounted(e.Item)
			close(s.changed)
			s.changed = make(chan struct{})
			return nil
		})
	}()
}

func unmounted(p server.PodStatus) bool {
	for _, v := range p.Volumes {
		if v.Phase != state.Absent {
			return false
		}
	}
	return true
}

// until waits until ok holds for the watched state of pod p.
func (d *daemon) until(ctx context.Context, p int, ok func(*standing) bool) error {
	for {
		d.mu.Lock()
		s := d.stand[state.PodUID(d.pods[p].UID)]
		yes, changed := ok(s), s.changed
		d.mu.Unlock()
		if yes {
			return nil
		}
		select {
		case <-changed:
		case err := <-d.ended:
			return fmt.Errorf("watch ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemon) wait(ctx context.Context, p int, goal client.Goal) error {
	if d.stand != nil {
		return d.until(ctx, p, func(s *standing) bool {
			if goal == client.Mounted {
				return s.mounted
			}
			return s.gone
		})
	}
	pr, err := d.client.Wait(ctx, client.Wait{Namespace: d.pods[p].Namespace, Name: d.pods[p].Name, For: goal, Timeout: patience}, nil)
	if err == nil && !pr.Done {
		return errors.New("wait timed out")
	}
	return err
}

func (d *daemon) turn(f func() error) error {
	d.turns <- struct{}{}
	defer func() { <-d.turns }()
	return f()
}

func (d *daemon) Mount(ctx context.Context, p int) error {
	if err := d.turn(func() error { return d.apply(ctx, p) }); err != nil {
		return err
	}
	return d.wait(ctx, p, client.Mounted)
}

func (d *daemon) apply(ctx context.Context, p int) error {
	if d.api != nil {
		return d.api.put(p)
	}
	_, err := d.client.Apply(ctx, d.docs[p])
	return err
}

func (d *daemon) Unmount(ctx context.Context, p int) error {
	pod := d.pods[p]
	if err := d.turn(func() error {
		if d.api != nil {
			return d.api.delete(p)
		}
		return d.client.DeletePod(ctx, pod.Namespace, pod.Name)
	}); err != nil {
		return err
	}
	return d.wait(ctx, p, client.Unmounted)
}

func (d *daemon) known(ctx context.Context) error {
	left := map[state.PodUID]bool{}
	for _, p := range d.pods {
		left[state.PodUID(p.UID)] = true
	}
	err := d.client.WatchPods(ctx, func(e server.Event[server.PodStatus]) error {
		if e.Item.Listed && e.Item.Ready && len(e.Item.Volumes) == d.flags.Volumes {
			delete(left, e.Item.Pod.UID)
		}
		if len(left) == 0 {
			return errUp
		}
		return nil
	})
	if !errors.Is(err, errUp) {
		return err
	}
	if len(d.pods) > maxWaits { // for the unmount that follows
		d.follow(ctx)
	}
	return nil
}

func (d *daemon) stop() error {
	if d.watch != nil {
		d.watch()
	}
	d.client.Close()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.cmd.Wait()
}

// Idle closes the connections of the burst, which would otherwise all end 20 seconds after
// it; the watch goes on.
func (d *daemon) Idle() { d.client.Close() }

func (d *daemon) Usage() benchdef.Snap     { return d.meter.Snap() }
func (d *daemon) RSS() (now, peak float64) { return d.meter.RSS() }
func (d *daemon) ResetRSS()                { d.meter.ResetPeakRSS() }
func (d *daemon) Goroutines() int          { return 0 }
