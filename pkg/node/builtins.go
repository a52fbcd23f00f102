package node

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/emptydir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/fc"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/netfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/nfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/quota"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// builtin is a kind that is served in this process.
type builtin struct {
	driver manager.Driver
	// mounts: after Publish the target is a mount point.
	mounts bool
	// staged: it is mounted on the node before it is shown to pods, and can grow.
	staged bool
	// grows: it can grow, although it is not staged.
	grows bool
	// usage says how full a volume is, where the kind does not mount; it may be nil.
	usage func(context.Context, state.Volume, state.PodUID) (emptydir.Usage, error)
}

func (n *Node) makeBuiltins(allocatable corev1.ResourceList) map[state.DriverName]builtin {
	scratch := emptydir.New(emptydir.Config{Layout: n.layout, Kernel: n.kernel, Quotas: quota.New(), Logger: n.log})
	kinds := map[state.DriverName]builtin{
		emptydir.Kind: {driver: scratch, usage: scratch.Usage},
		hostpath.Kind: {driver: n.away(hostpath.Kind)},
		local.Kind:    {driver: n.away(local.Kind), mounts: true, grows: true},
	}
	kinds[nfs.Kind] = builtin{driver: nfs.New(nfs.Config{Layout: n.layout, Kernel: n.kernel, Run: new(program.Runner).Run}), mounts: true}
	kinds[netfs.CephFS] = builtin{driver: netfs.New(netfs.Config{Kind: netfs.CephFS, Layout: n.layout, Kernel: n.kernel, Run: new(program.Runner).Run, Command: netfs.CephFSCommand}), mounts: true}
	kinds[netfs.GlusterFS] = builtin{driver: netfs.New(netfs.Config{Kind: netfs.GlusterFS, Layout: n.layout, Kernel: n.kernel, Run: new(program.Runner).Run, Command: netfs.GlusterFSCommand}), mounts: true}
	disks := disk.Stager{Layout: n.layout, Kernel: n.kernel, Host: disk.NewHost(new(program.Runner).Run)}
	kinds[iscsi.Kind] = builtin{driver: iscsi.New(iscsi.Config{Stager: disks, Secret: secrets{n}.Secret, Volumes: n.records, Log: n.log}), mounts: true, staged: true}
	kinds[fc.Kind] = builtin{driver: fc.New(fc.Config{Stager: disks, Volumes: n.records}), mounts: true, staged: true}
	kinds[image.Kind] = builtin{driver: n.image, mounts: true}
	for _, kind := range files.Kinds {
		d := files.New(kind, files.Config{Layout: n.layout, Kernel: n.kernel, Source: objects{n, allocatable}, Token: n.fileToken(), Certificate: n.fileCertificate(), Logger: n.log})
		kinds[kind] = builtin{driver: d, mounts: files.InMemory(kind)}
		n.sweeps = append(n.sweeps, d.Run)
	}
	return kinds
}

func (n *Node) tellBuiltins() {
	for _, kind := range slices.Sorted(maps.Keys(n.builtins)) {
		b := n.builtins[kind]
		n.manager.DriverUp(manager.DriverInfo{Name: kind, Builtin: true, MountsTarget: b.mounts, Stage: b.staged, Expand: b.staged || b.grows}, b.driver)
	}
}

// records are the volumes of the journal.
func (n *Node) records() []state.Volume {
	var all []state.Volume
	for _, v := range n.manager.Volumes() {
		all = append(all, v.Volume)
	}
	return all
}

// allocatable is what the node has for pods: all of it, since nobody here says
// what to keep back.
func allocatable(root string) (corev1.ResourceList, error) {
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return nil, fmt.Errorf("sysinfo: %w", err)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(root, &disk); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", root, err)
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(memory.Totalram)*int64(memory.Unit), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*disk.Bsize, resource.BinarySI),
	}, nil
}

// objects is where the built-in kinds read what they show as files.
type objects struct {
	n           *Node
	allocatable corev1.ResourceList
}

func (o objects) Allocatable() corev1.ResourceList { return o.allocatable }

func (o objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return object[*corev1.ConfigMap](o.n, source.Key{Kind: resolve.KindConfigMap, Namespace: namespace, Name: name})
}

func (o objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return object[*corev1.Secret](o.n, source.Key{Kind: resolve.KindSecret, Namespace: namespace, Name: name})
}

func (o objects) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	if err := o.n.allSpoken(source.Key{Kind: resolve.KindTrustBundles}); err != nil {
		return nil, err
	}
	return o.n.catalog.TrustBundles(), nil
}

func (o objects) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return object[*corev1.Pod](o.n, source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name})
}

// object returns an object of the catalog, nil where there is none, and an error
// where a source has not spoken yet, so that nobody knows.
func object[T any](n *Node, key source.Key) (found T, err error) {
	found, ok := n.catalog.Get(key).(T)
	if ok {
		return found, nil
	}
	return found, n.allSpoken(key)
}

// allSpoken returns an error where a source has not spoken yet.
func (n *Node) allSpoken(key source.Key) error {
	n.mu.Lock()
	silent := slices.Sorted(maps.Keys(n.silent))
	n.mu.Unlock()
	if len(silent) > 0 {
		return fmt.Errorf("%s: not known yet: sources %s have not spoken", key, strings.Join(silent, ", "))
	}
	return nil
}
