// Program own has a volume manager of its own, made of the packages that programs of others may import: a
// pod gets an emptyDir and a volume of a CSI driver that registers, and loses them.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

const source = "own"

// memory keeps the records as long as the program runs.
type memory struct {
	mu      sync.Mutex
	records map[state.VolumeID]state.Volume
	boot    string
}

func (m *memory) Load(context.Context) (state.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return state.Loaded{Volumes: maps.Clone(m.records), BootID: m.boot}, nil
}

func (m *memory) Commit(_ context.Context, changes map[state.VolumeID]*state.Volume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, v := range changes {
		if v == nil {
			delete(m.records, id)
		} else {
			m.records[id] = *v
		}
	}
	return nil
}

func (m *memory) SetBootID(_ context.Context, id string) error {
	m.boot = id
	return nil
}

// nothing has no objects.
type nothing struct{}

func (nothing) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) { return nil, nil }
func (nothing) Secret(context.Context, string, string) (*corev1.Secret, error)       { return nil, nil }
func (nothing) Pod(context.Context, string, string) (*corev1.Pod, error)             { return nil, nil }
func (nothing) Allocatable() corev1.ResourceList                                     { return nil }
func (nothing) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	return nil, nil
}

// drivers gives the manager the drivers that register.
type drivers struct {
	root    string
	manager *manager.Manager
	dialed  sync.Map // state.DriverName → *csiclient.Driver
}

func (d *drivers) Up(ctx context.Context, p registration.Plugin) error {
	c, err := csiclient.Dial(ctx, csiclient.Config{Name: p.Name, Endpoint: p.Endpoint, Root: d.root})
	if err != nil {
		return err
	}
	d.dialed.Store(p.Name, c)
	i := c.Info()
	d.manager.DriverUp(manager.DriverInfo{Name: p.Name, Stage: i.Stage, Expand: i.Expand, MountsTarget: true}, c)
	return nil
}

func (d *drivers) Down(p registration.Plugin, reason string) {
	d.manager.DriverDown(p.Name, reason)
	if c, ok := d.dialed.LoadAndDelete(p.Name); ok {
		c.(*csiclient.Driver).Close()
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1], state.DriverName(os.Args[2])); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, root string, driver state.DriverName) error {
	var m *manager.Manager
	kinds, err := intree.New(intree.Config{
		Root: root, Objects: nothing{}, Manager: func() *manager.Manager { return m }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer kinds.Close()
	m, err = manager.New(manager.Config{
		Store: &memory{records: map[state.VolumeID]state.Volume{}}, Kernel: kinds.Kernel(), Sources: []string{source},
		BootID: "this boot", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	layout := state.Layout{Root: root}
	sockets := registration.New(registration.Config{Dir: layout.Registry(), Handler: &drivers{root: root, manager: m}})
	ctx, end := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	for _, task := range []func(context.Context) error{m.Run, sockets.Run, func(ctx context.Context) error { return kinds.Run(ctx, m) }} {
		tasks.Go(func() { _ = task(ctx) })
	}
	defer tasks.Wait()
	defer end()

	pod := state.Pod{UID: "b3f2f0a2-0c1e-4a41-9a0e-7a3c1d2e4f50", Namespace: "default", Name: "web"}
	m.SetPod(state.PodWant{Pod: pod, Volumes: []state.VolumeWant{scratch(layout, pod), disk(layout, pod, driver)}})
	m.SourceSynced(source)
	if err := m.WaitUnlessRefused(ctx, pod.UID); err != nil {
		return err
	}
	volumes := m.GetMountedVolumesForPod(pod.UID)
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		path := volumes[name].HostPath
		if err := os.WriteFile(filepath.Join(path, "page"), []byte(name), 0o600); err != nil {
			return err
		}
		fmt.Println(name, path)
	}
	m.RemovePod(pod.UID)
	if err := m.WaitForUnmount(ctx, pod.UID); err != nil {
		return err
	}
	fmt.Println("left:", len(m.Volumes()), "translated:", len(translate.Kinds()) > 0)
	return nil
}

// scratch is an emptyDir.
func scratch(l state.Layout, pod state.Pod) state.VolumeWant {
	const kind state.DriverName = "kubernetes.io/empty-dir"
	return state.VolumeWant{
		Names: []string{"scratch"}, ID: state.PodVolumeID(kind, pod.UID, "scratch"),
		Spec:  state.Spec{Driver: kind, Builtin: true, Name: "scratch", Mode: state.Filesystem, Config: []byte(`{}`)},
		Mount: state.MountSpec{Pod: pod, Target: l.BuiltinTarget(kind, pod.UID, "scratch")},
	}
}

// disk is a volume that a CSI driver has.
func disk(l state.Layout, pod state.Pod, driver state.DriverName) state.VolumeWant {
	const handle, name = "disk-1", "pv-1"
	return state.VolumeWant{
		Names: []string{"disk"}, ID: state.SharedID(driver, handle),
		Spec: state.Spec{
			Driver: driver, Handle: handle, Name: name, Mode: state.Filesystem, AccessModes: []state.AccessMode{state.ReadWriteOnce},
			Context: map[string]string{"size": "1Mi"}, StagePath: l.StagePath(state.Filesystem, driver, handle, name),
		},
		Mount: state.MountSpec{Pod: pod, Target: l.Target(state.Filesystem, pod.UID, name)},
	}
}
