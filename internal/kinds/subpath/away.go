package subpath

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Helpers runs calls that may hang. [*isolate.Pool] implements it, with [Helper] in its
// service.
type Helpers interface {
	isolate.Doer
	// Idle returns a channel that is closed when the call for key that runs now has
	// returned, even if it was left behind.
	Idle(key string) <-chan struct{}
}

// callBind is the name of the helper's call for [Binder.Bind].
const callBind = "bind-subpath"

// Helper returns the calls of this package that a helper process serves.
func Helper() isolate.Service {
	return isolate.Service{
		Handlers: map[string]isolate.Handler{callBind: isolate.Handle(doBind)},
		Errors:   []error{ErrMissing, ErrEscapes, hostpath.ErrDenied, hostpath.ErrType},
	}
}

// Root says how the root of a volume is opened.
type Root struct {
	// Path is its path, for every kind but hostPath.
	Path string `json:"path,omitempty"`
	// HostPath is the source of a hostPath volume; nil for other kinds.
	HostPath *corev1.HostPathVolumeSource `json:"hostPath,omitempty"`
	// Allow lists the directories at or below which hostPath volumes may be.
	Allow []string `json:"allow,omitempty"`
}

// open opens the root for identity only (O_PATH). whole means that the container gets all of
// the volume, which is then made if it is missing and a hostPath.
func (r Root) open(k *mount.Kernel, whole bool) (*os.File, error) {
	switch {
	case r.HostPath == nil:
		return k.Open(r.Path)
	case whole:
		return hostpath.OpenWhole(r.Allow, *r.HostPath)
	}
	return hostpath.Open(r.Allow, r.HostPath.Path)
}

// bindRequest is a Bind as sent to a helper.
type bindRequest struct {
	Node    string  `json:"node"` // the node's root directory
	Request Request `json:"request"`
}

// bindAway calls bind in a helper. It returns when the helper has: what was left behind may
// still mount something.
func (b *Binder) bindAway(ctx context.Context, lock string, r Request) error {
	key := "subpaths of " + lock
	_, err := isolate.Ask[any](ctx, b.helpers, key, callBind, bindRequest{b.layout.Root, r})
	<-b.helpers.Idle(key)
	return err
}

// doBind runs in the helper.
func doBind(ctx context.Context, r bindRequest) (any, error) {
	b := &Binder{layout: state.Layout{Root: r.Node}, kernel: mount.New(r.Node).Synchronous()}
	return nil, b.bind(ctx, r.Request)
}
