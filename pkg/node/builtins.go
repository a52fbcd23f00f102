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

	"github.com/csi-volmgr/csi-volmgr/pkg/away"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/emptydir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/fc"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/netfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/nfs"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/quota"
	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// builtin is a kind that is served in this process.
type builtin struct {
	kind.Kind
	driver manager.Driver
	// usage says how full a volume is, where the kind does not mount; it may be nil.
	usage func(context.Context, state.Volume, state.PodUID) (emptydir.Usage, error)
}

func (n *Node) makeBuiltins(allocatable corev1.ResourceList, images *image.Driver) map[state.DriverName]builtin {
	run := new(program.Runner).Run
	scratch := emptydir.New(emptydir.Config{Layout: n.layout, Kernel: n.kernel, Quotas: quota.New(), Logger: n.log})
	servers := func(of state.DriverName, command func(state.Spec, state.Mount, string) (program.Command,
		error),
	) manager.Driver {
		return netfs.New(netfs.Config{Kind: of, Layout: n.layout, Kernel: n.kernel, Run: run, Command: command})
	}
	disks := disk.Stager{Layout: n.layout, Kernel: n.kernel, Host: disk.NewHost(run)}
	drivers := map[state.DriverName]manager.Driver{
		kind.CephFS:    servers(kind.CephFS, netfs.CephFSCommand),
		kind.EmptyDir:  scratch,
		kind.FC:        fc.New(fc.Config{Stager: disks, Volumes: n.records}),
		kind.GlusterFS: servers(kind.GlusterFS, netfs.GlusterFSCommand),
		kind.HostPath:  n.away(kind.HostPath),
		kind.Image:     images,
		kind.ISCSI:     iscsi.New(iscsi.Config{Stager: disks, Secret: secrets{n}.Secret, Volumes: n.records, Log: n.log}),
		kind.Local:     n.away(kind.Local),
		kind.NFS:       nfs.New(nfs.Config{Layout: n.layout, Kernel: n.kernel, Run: run}),
	}
	for _, of := range files.Kinds {
		d := files.New(of, files.Config{
			Layout: n.layout, Kernel: n.kernel, Source: objects{n, allocatable},
			Token: n.fileToken(), Certificate: n.fileCertificate(), Logger: n.log,
		})
		drivers[of] = d
		n.sweeps = append(n.sweeps, d.Run)
	}
	served := map[state.DriverName]builtin{}
	for _, k := range kind.All() {
		served[k.Name] = builtin{Kind: k, driver: drivers[k.Name]}
	}
	served[kind.EmptyDir] = builtin{served[kind.EmptyDir].Kind, scratch, scratch.Usage}
	return served
}

// away returns a kind whose verbs are called in a helper.
func (n *Node) away(of state.DriverName) manager.Driver {
	return away.New(away.Config{Kind: of, Allow: n.cfg.HostPaths, Layout: n.layout, Helpers: n.helpers})
}

func (n *Node) tellBuiltins() {
	for _, name := range slices.Sorted(maps.Keys(n.builtins)) {
		b := n.builtins[name]
		n.manager.DriverUp(manager.DriverInfo{
			Name: name, Builtin: true, MountsTarget: b.Mounts, Stage: b.Stages, Expand: b.Stages || b.Grows,
		}, b.driver)
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
	if silent := n.heard.Silent(); len(silent) > 0 {
		return fmt.Errorf("%s: not known yet: sources %s have not spoken", key, strings.Join(silent, ", "))
	}
	return nil
}
