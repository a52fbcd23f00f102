// Package intree has the built-in kinds of volumes, such as emptyDir, configMap, nfs and iscsi, for a
// program with a [manager.Manager] of its own. A program that wants a whole node, with pods and claims,
// uses package node.
//
// Owns: the drivers of the kinds for such a program, and the kernel that its manager asks.
//
// Does not: resolve pods. A volume's state.Spec names the kind as its driver, and has the kind's fields in
// Config, as JSON: of an emptyDir, its source in the pod.
//
// Concurrency: any goroutine may call the methods of [Kinds].
package intree

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Config is what the built-in kinds need. Root, Objects and Manager are required.
type Config struct {
	// Root is the directory below which volumes are mounted, in the kubelet's layout.
	Root string
	// HostPaths lists the directories of the node at or below which hostPath and local volumes may be, as
	// clean absolute paths. If it is empty, there are no such volumes.
	HostPaths []string
	// Images lists the directories at or below which layouts of OCI images are.
	Images []string
	// Helper returns a command, not started, of a helper process: this or another program, which calls
	// [ServeHelper]. If it is nil, calls on storage run in this process, which then cannot end while one
	// of them hangs.
	Helper func() *exec.Cmd
	// Objects has what pods' volumes show as files.
	Objects Objects
	// Manager returns the manager that has the volumes, once it is made.
	Manager func() *manager.Manager
	// Secret returns the values of a secret, for iscsi; nil if no volume names one.
	Secret func(context.Context, state.SecretRef) (map[string]string, error)
	// Token returns a token of a pod's service account and the time to renew it; nil if no volume shows
	// one.
	Token func(ctx context.Context, pod state.Pod, audience string, lifetime time.Duration) (value string,
		renewAt time.Time, err error)
	// Logger is where the kinds log; nil means slog.Default.
	Logger *slog.Logger
}

// Objects has the objects that configMap, secret, downwardAPI and projected volumes show as files. An
// object that is not there is nil, without an error. The objects are not modified.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error)
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Allocatable is what the node's pods may use, for fields of the downward API.
	Allocatable() corev1.ResourceList
}

// Kinds are the built-in kinds. Use [New] to make them.
type Kinds struct {
	set     *builtins.Set
	kernel  *mount.Kernel
	allow   []string
	helpers *isolate.Pool
}

// New makes the drivers of the kinds. It mounts nothing and starts no process.
func New(c Config) (*Kinds, error) {
	switch {
	case !filepath.IsAbs(c.Root):
		return nil, fmt.Errorf("built-in kinds: Root: found %q, want an absolute path", c.Root)
	case c.Objects == nil || c.Manager == nil:
		return nil, errors.New("built-in kinds: Objects, Manager: found nil, want both")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Secret == nil {
		c.Secret = func(_ context.Context, ref state.SecretRef) (map[string]string, error) {
			return nil, fmt.Errorf("secret %s/%s: found no source of volumes' secrets (intree.Config.Secret)",
				ref.Namespace, ref.Name)
		}
	}
	layout := state.Layout{Root: filepath.Clean(c.Root)}
	k := &Kinds{allow: c.HostPaths, helpers: isolate.New(isolate.Config{
		Command: isolate.Command(c.Helper), Service: away.Service(), Logger: c.Logger,
	})}
	k.kernel = mount.New(layout.Root).MakeAway(k.helpers)
	k.set = builtins.New(builtins.Config{
		Layout: layout, Kernel: k.kernel, Helpers: k.helpers, HostPaths: c.HostPaths, Objects: c.Objects,
		Images: image.New(image.Config{Layout: layout, Kernel: k.kernel, Dirs: c.Images, Away: k.helpers}),
		Secret: c.Secret, Token: c.Token, Logger: c.Logger,
		Volumes: func() (all []state.Volume) {
			for _, v := range c.Manager().Volumes() {
				all = append(all, v.Volume)
			}
			return all
		},
	})
	return k, nil
}

// Kernel returns what the manager asks about the node's mounts (manager.Config.Kernel).
func (k *Kinds) Kernel() manager.Kernel { return away.Kernel{Kernel: k.kernel, Allow: k.allow} }

// Run gives the kinds to the manager. Until ctx ends, it removes replaced files of configMaps and their
// like, and tells the manager of programs that come and go, such as mount.nfs.
func (k *Kinds) Run(ctx context.Context, m *manager.Manager) error {
	k.set.Register(m)
	var tasks sync.WaitGroup
	for _, sweep := range k.set.Sweeps() {
		tasks.Go(func() { _ = sweep(ctx) }) // it is ctx's error
	}
	err := k.set.Programs(m)(ctx)
	tasks.Wait()
	return err
}

// Close ends the helper processes. An error says that some are left behind, with calls that hang.
func (k *Kinds) Close() error { return k.helpers.Close() }

// ServeHelper runs calls on storage in the process that [Config.Helper] started. It returns when the
// program that started it is gone; the process should then exit.
func ServeHelper(ctx context.Context) error { return away.Serve(ctx) }
