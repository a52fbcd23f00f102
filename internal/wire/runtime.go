package wire

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/host/cri"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// following returns a loop that calls do at once and after each change.
func following(changed func() <-chan struct{}, do func()) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			next := changed()
			do()
			select {
			case <-next:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// wireRuntime makes the clients of the container runtime, if one is configured. alive tells which pods'
// containers live, and is nil without a runtime; images is the driver of image volumes.
func (n *Node) wireRuntime() (alive manager.Containers, images *image.Driver, err error) {
	if n.cfg.ContainerRuntime != "" {
		if n.runtime, err = cri.New(cri.Config{Endpoint: n.cfg.ContainerRuntime, Logger: n.log}); err != nil {
			return nil, nil, err
		}
		alive = n.runtime
	}
	c := image.Config{Layout: n.layout, Kernel: n.kernel, Dirs: n.cfg.Images, Away: n.helpers}
	if n.cfg.ImageService != "" {
		if n.images, err = cri.NewImages(n.cfg.ImageService); err != nil {
			return nil, nil, err
		}
		c.Service = n.images
	}
	return alive, image.New(c), nil
}
