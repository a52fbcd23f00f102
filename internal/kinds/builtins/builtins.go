// Package builtins makes the drivers of the built-in kinds of volumes, which are served in this process,
// from the table in internal/wants/kind.
//
// Owns: which driver serves a kind.
//
// Does not: make a volume itself (the kinds beside it do), or tell what a kind can do (internal/wants/kind).
package builtins

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/netfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/nfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/quota"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Config is what the drivers need; every field is required unless it says otherwise.
type Config struct {
	Layout  state.Layout
	Kernel  *mount.Kernel
	Helpers *isolate.Pool
	// HostPaths lists the directories of the node at or below which hostPath and local volumes may be.
	HostPaths []string
	Images    *image.Driver
	// Objects has the objects that are shown as files.
	Objects files.Source
	// Secret returns the values of a secret.
	Secret func(context.Context, state.SecretRef) (map[string]string, error)
	// Token and Certificate are those of [files.Config].
	Token       func(context.Context, state.Pod, string, time.Duration) (string, time.Time, error)
	Certificate func(context.Context, state.Pod, corev1.PodCertificateProjection) (files.Credential, error)
	// Volumes returns the volumes of the journal.
	Volumes func() []state.Volume
	Logger  *slog.Logger
}

// Usage measures a volume of a kind that does not mount.
type Usage func(context.Context, state.Volume, state.PodUID) (emptydir.Usage, error)

// lasting is the driver of a kind whose mounts are never renewed.
type lasting struct{ poddir.Verbs }

// Publish implements manager.Driver.
func (l lasting) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, l.Verbs.Publish(ctx, v, pod)
}

// Set has the drivers of every built-in kind. Any goroutine may call its methods.
type Set struct {
	drivers map[state.DriverName]manager.Driver
	usage   map[state.DriverName]Usage
	sweeps  []func(context.Context) error
	logger  *slog.Logger
	told    map[state.DriverName]string // what the loop knows to make kinds unusable
}

// New makes the drivers.
func New(c Config) *Set {
	run := new(program.Runner).Run
	scratch := emptydir.New(emptydir.Config{Layout: c.Layout, Kernel: c.Kernel, Quotas: quota.New(), Logger: c.Logger})
	servers := func(of state.DriverName, command func(state.Spec, state.Mount, string) (program.Command,
		error),
	) manager.Driver {
		return lasting{netfs.New(netfs.Config{Kind: of, Layout: c.Layout, Kernel: c.Kernel, Run: run, Command: command})}
	}
	inHelper := func(of state.DriverName) manager.Driver {
		return lasting{away.New(away.Config{
			Kind: of, Allow: c.HostPaths, Layout: c.Layout, Helpers: c.Helpers,
			Volumes: c.Volumes, Secret: c.Secret, Logger: c.Logger,
		})}
	}
	s := &Set{
		logger: c.Logger, told: map[state.DriverName]string{},
		drivers: map[state.DriverName]manager.Driver{
			kind.CephFS:    servers(kind.CephFS, netfs.CephFSCommand),
			kind.EmptyDir:  lasting{scratch},
			kind.FC:        inHelper(kind.FC),
			kind.GlusterFS: servers(kind.GlusterFS, netfs.GlusterFSCommand),
			kind.HostPath:  inHelper(kind.HostPath),
			kind.Image:     lasting{c.Images},
			kind.ISCSI:     inHelper(kind.ISCSI),
			kind.Local:     inHelper(kind.Local),
			kind.NFS:       lasting{nfs.New(nfs.Config{Layout: c.Layout, Kernel: c.Kernel, Run: run})},
		},
		usage: map[state.DriverName]Usage{kind.EmptyDir: scratch.Usage},
	}
	for _, of := range files.Kinds {
		d := files.New(of, files.Config{
			Layout: c.Layout, Kernel: c.Kernel, Source: c.Objects,
			Token: c.Token, Certificate: c.Certificate, Logger: c.Logger,
		})
		s.drivers[of] = d
		s.sweeps = append(s.sweeps, d.Run)
	}
	return s
}

// Loop is the part of the manager that takes drivers.
type Loop interface {
	DriverUp(info manager.DriverInfo, d manager.Driver)
}

// Register registers every driver with the loop.
func (s *Set) Register(l Loop) {
	for _, k := range kind.All() {
		s.register(l, k, unusable(k, program.Dirs()))
	}
}

// register registers the driver of a kind, or what has changed of it.
func (s *Set) register(l Loop, k kind.Kind, unusable string) {
	s.told[k.Name] = unusable
	l.DriverUp(manager.DriverInfo{
		Name: k.Name, Builtin: true, MountsTarget: k.Mounts, Stage: k.Stages, Expand: k.Stages || k.Grows, Unusable: unusable,
	}, s.drivers[k.Name])
}

// Usage returns the functions that measure volumes, by kind.
func (s *Set) Usage() map[state.DriverName]Usage { return s.usage }

// Names lists the kinds.
func (s *Set) Names() []state.DriverName { return slices.Sorted(maps.Keys(s.drivers)) }

// Sweeps returns functions that each remove, once, what an earlier daemon left.
func (s *Set) Sweeps() []func(context.Context) error { return s.sweeps }

// Lacks returns the programs that volumes of a built-in kind cannot be mounted without, and that this
// node does not have now.
func Lacks(name state.DriverName) []string { return lacks(name, nil) }

// lacks is Lacks for programs in dirs; nil means the system's directories.
func lacks(name state.DriverName, dirs []string) []string {
	k, _ := kind.Of(name)
	if k.Program == "" || (&program.Runner{Dirs: dirs}).Has(k.Program) {
		return nil
	}
	return []string{k.Program}
}
