package node

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/cri"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// containers returns who says whether containers of a pod live, nil for nobody.
func (n *Node) containers() (_ manager.Containers, err error) {
	if n.cfg.ContainerRuntime == "" {
		return nil, nil
	}
	n.runtime, err = cri.New(cri.Config{Endpoint: n.cfg.ContainerRuntime, Logger: n.log})
	return n.runtime, err
}

// runRuntimeView tells the node API when the runtime falls silent or answers again.
func (n *Node) runRuntimeView(ctx context.Context) error {
	for {
		changed := n.runtime.Changed()
		n.changed.send()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// newImage returns the kind of images, with the runtime's where there is one.
func (n *Node) newImage() (_ *image.Driver, err error) {
	c := image.Config{Layout: n.layout, Kernel: n.kernel, Dirs: n.cfg.Images, Away: n.helpers}
	if n.cfg.ImageService != "" {
		if n.images, err = cri.NewImages(n.cfg.ImageService); err != nil {
			return nil, err
		}
		c.Service = n.images
	}
	return image.New(c), nil
}
