package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/selinux"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/internal/wire/apiserver"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// Node is one node's volume manager. Use [New] to make one.
type Node struct {
	node *wire.Node
	cfg  wire.Config
	api  server.Config
}

// New opens the journal; nothing runs until Run. It fails if another daemon uses the root or the journal,
// or if a kubelet runs on the root.
func New(c Config) (*Node, error) {
	if modes := selinux.Modes(); c.SELinuxMount != "" && !slices.Contains(modes, c.SELinuxMount) {
		return nil, fmt.Errorf("new node: SELinuxMount: found %q, want one of %q, or none", c.SELinuxMount, modes)
	}
	n := &Node{cfg: c.wired(), api: server.Config{Socket: c.Socket, Version: server.Version{Version: c.Version}}}
	var err error
	n.node, err = wire.New(n.cfg)
	if err != nil {
		return nil, err
	}
	return n, nil
}

// Run runs the node, and serves its API, until ctx ends or one of them fails, as when another program has
// the socket. What is mounted stays mounted. A Node runs once.
func (n *Node) Run(ctx context.Context) error {
	if n.api.Socket == "" {
		return n.node.Run(ctx)
	}
	api, err := apiserver.New(ctx, n.node, n.cfg, n.api)
	if err != nil {
		return errors.Join(err, n.node.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- api.Run(ctx)
	}()
	err = n.node.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// Close releases what New took, for a Node that does not run. Run does it itself.
func (n *Node) Close() error { return n.node.Close() }

// Manager returns the volume manager.
func (n *Node) Manager() *manager.Manager { return n.node.Manager() }

// Started returns a channel that is closed when all sources of objects have spoken and the manager shows
// what they said, compared with the kernel. Without Run it is never closed.
func (n *Node) Started() <-chan struct{} { return n.node.Started() }

// MountPod makes pod and the objects in beside (claims, volumes, configMaps...) wanted, durably, waits
// until every volume that its containers use is mounted, and returns the volumes by their names in the
// pod. If ctx ends first, the error is a [*manager.WaitError] and the pod stays wanted. All objects get
// the defaults of a manifest: the namespace "default", and a UID that depends only on kind, namespace and
// name.
func (n *Node) MountPod(ctx context.Context, pod *corev1.Pod, beside ...runtime.Object,
) (map[string]manager.MountedVolume, error) {
	return n.node.MountPod(ctx, pod, beside...)
}

// UnmountPod reports that the pod's containers have ended for good, and waits until none of its volumes
// is mounted. Data of persistent volumes stays. UnmountPod may be called again if ctx ended first, and
// does nothing for an unknown pod.
func (n *Node) UnmountPod(ctx context.Context, pod *corev1.Pod) error {
	return n.node.UnmountPod(ctx, pod)
}

// ContainerMounts returns what a runtime mounts into a container of a pod, in the order of the
// container's spec. It makes and binds a subPath only now: containers that ran before, such as init
// containers, may have made it. When a container restarts, a second call returns the same mounts, or
// those of the present files.
func (n *Node) ContainerMounts(ctx context.Context, c Container) ([]ContainerMount, error) {
	found, err := n.node.ContainerMounts(ctx, server.Container(c))
	if err != nil {
		return nil, err
	}
	mounts := make([]ContainerMount, 0, len(found))
	for _, m := range found {
		mounts = append(mounts, ContainerMount(m))
	}
	return mounts, nil
}

// ServeHelper runs a node's calls on storage in the process that [Config.Helper] started. It returns when
// the node is gone; the process should then exit.
func ServeHelper(ctx context.Context) error { return wire.ServeHelper(ctx) }

// Decode returns the objects of a file of manifests, with their defaults. An error names the object, the
// field, what was found, and what is wanted.
func Decode(file string, data []byte) ([]runtime.Object, error) { return manifest.Decode(file, data) }
