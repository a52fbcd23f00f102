package wire

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/podcert"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// wireBuiltins makes the drivers of the built-in kinds.
func (n *Node) wireBuiltins(allocatable corev1.ResourceList, images *image.Driver) {
	c := builtins.Config{
		Layout: n.layout, Kernel: n.kernel, Helpers: n.helpers, HostPaths: n.cfg.HostPaths, Images: images,
		Objects: builtins.Catalog{
			Objects: func() *source.Catalog { return n.catalog }, Silent: func() []string { return n.sync.Silent() },
			NodeName: n.cfg.Name, Resources: allocatable,
		},
		Secret: secrets{n}.Secret, Logger: n.log,
		Volumes: func() (all []state.Volume) {
			for _, v := range n.manager.Volumes() {
				all = append(all, v.Volume)
			}
			return all
		},
	}
	if n.cfg.issuesTokens() { // with a cluster, both are made after the drivers
		c.Token = fileToken(func() csiclient.TokenSource { return n.tokens })
	}
	if n.cfg.Cluster != nil {
		c.Certificate = fileCertificate(func() *podcert.Requester { return n.cluster.Certificates })
	}
	n.builtins = builtins.New(c)
	n.sweeps = append(n.sweeps, n.builtins.Sweeps()...)
}
