package node

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/pkg/builtins"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// wireBuiltins makes the drivers of the built-in kinds.
func (n *Node) wireBuiltins(allocatable corev1.ResourceList, images *image.Driver) {
	n.builtins = builtins.New(builtins.Config{
		Layout: n.layout, Kernel: n.kernel, Helpers: n.helpers, HostPaths: n.cfg.HostPaths, Images: images,
		Catalog: func() *source.Catalog { return n.catalog }, Silent: func() []string { return n.heard.Silent() },
		Secret: secrets{n}.Secret, Token: n.fileToken(), Certificate: n.fileCertificate(), Allocatable: allocatable,
		Logger: n.log,
		Volumes: func() (all []state.Volume) {
			for _, v := range n.manager.Volumes() {
				all = append(all, v.Volume)
			}
			return all
		},
	})
	n.sweeps = append(n.sweeps, n.builtins.Sweeps()...)
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
