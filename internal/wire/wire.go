package wire

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/doors/containers"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/operate"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/takeover"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/ephemeral"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/selinux"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// wire makes every component and connects it to those that it needs.
func (n *Node) wire(storage *storageid.Keeper) error {
	if err := n.wireKernel(); err != nil {
		return err
	}
	allocatable, err := builtins.Allocatable(n.cfg.Root)
	if err != nil {
		return fmt.Errorf("read the node's allocatable resources: %w", err)
	}
	runtime, images, err := n.wireRuntime()
	if err != nil {
		return err
	}
	n.wireBuiltins(allocatable, images)
	key, err := source.RevisionKey(n.cfg.RuntimeDir)
	if err != nil {
		return fmt.Errorf("read or make the revision key: %w", err)
	}
	n.controller = controller.New(controller.Config{
		KV: n.journal, Secrets: secrets{n}, Usage: usage{n}, Freezer: newFreezer(n), OnDemand: n.cfg.Cluster != nil,
		StorageID: storage.Chooser(storageid.Config{
			Journal: n.journal, Flag: n.cfg.StorageID, Quiet: n.cfg.Cluster != nil, Logger: n.log,
		}), Lost: lost(n.journal), Logger: n.log,
	})
	n.sync = source.NewSyncTracker(n.cfg.sources())
	store, err := store(n.cfg.Metrics, n.journal)
	if err != nil {
		return err
	}
	if err := n.wireManager(runtime, store); err != nil {
		return err
	}
	if err := n.wireCatalog(allocatable, key); err != nil {
		return err
	}
	given := containers.Config{
		Parts: n.parts, Volumes: n.manager, Catalog: n.catalog, Image: images, HostPaths: n.cfg.HostPaths, Logger: n.log,
	}
	n.Giver, n.sweeps = containers.New(given), append(n.sweeps, given.Sweep)
	n.api = api.New(api.Config{
		KV: n.journal, Catalog: n.catalog, SecretsDir: filepath.Join(n.cfg.StateDir, "secrets"), Logger: n.log,
	})
	if n.cfg.Manifests != "" {
		n.file = file.New(file.Config{Dir: n.cfg.Manifests, Catalog: n.catalog, KV: n.journal, Logger: n.log})
	}
	n.views = n.newViews(storage)
	if err := n.wireCluster(); err != nil {
		return err
	}
	n.wireDrivers()
	n.wireOperators()
	n.registry = registration.New(registration.Config{
		Dir: n.cfg.RegistrationDir, Shared: n.cfg.RegistrationShared, Handler: n.Drivers, Logger: n.log,
	})
	return nil
}

// wireKernel makes the components that read and change the kernel's mounts.
func (n *Node) wireKernel() error {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return fmt.Errorf("read the boot id: %w", err)
	}
	n.helpers = isolate.New(isolate.Config{
		Command: n.cfg.Helper, Service: away.Service(), Logger: n.log,
		OnReturn: func(key string) { retryAt(n.manager, key) },
	})
	n.kernel = mount.New(n.cfg.Root).MakeAway(n.helpers)
	n.mounts = watch.NewMounts(watch.MountsConfig{
		Root: n.cfg.Root, Kernel: n.kernel, Logger: n.log, Every: n.cfg.faultsEvery,
	})
	n.parts = &containers.Parts{
		Layout: n.layout, Kernel: n.kernel, Subpaths: subpath.New(n.layout, n.kernel, n.helpers),
		Keeper: disk.Keeper{Layout: n.layout, Kernel: n.kernel},
	}
	n.bootID = strings.TrimSpace(string(boot))
	return nil
}

// lost returns a function that reports whether the journal may have lost records and no operator has accepted
// that.
func lost(j *journal.Bolt) func() bool { return func() bool { return j.Recovery().Lost() } }

// sources lists the names of the sources of objects.
func (c Config) sources() []string {
	names := []string{api.Name, binding.Name, made.Name, named.Name}
	if c.Manifests != "" {
		names = append(names, file.Name)
	}
	if c.Cluster == nil {
		names = append(names, ephemeral.Name)
	}
	if c.Cluster != nil {
		names = append(names, source.Kube)
	}
	return names
}

// wireOperators makes the components behind operators' verbs.
func (n *Node) wireOperators() {
	n.Objects = operate.NewObjects(operate.ObjectsConfig{
		API: n.api, Journal: n.journal, Catalog: n.catalog, Controller: n.controller, Manager: n.manager, Usage: usage{n},
		Audit: n.audit, Manifests: n.cfg.Manifests, Loaded: n.loaded,
		Silent: n.views.NotReady, SilentSources: n.sync.Silent, Lost: lost(n.journal), Changed: n.changed.next, Logger: n.log,
		Bindings: binding.New(binding.Config{
			Catalog: n.catalog, Journal: n.journal, Remote: source.Kube, Made: n.made.Provisions, Silent: n.sync.Silent,
			Volumes: n.manager.Volumes, Logger: n.log,
		}),
	})
	n.Pods = operate.Pods{API: n.api, Manager: n.manager, Objects: n.Objects}
	n.Named = operate.NewNamed(operate.NamedConfig{
		Root: n.root, Catalog: n.catalog, Journal: n.journal, Objects: n.Objects, Manager: n.manager, Containers: n.Giver,
		Helpers: n.helpers, BootID: n.bootID, Lost: lost(n.journal), Silent: n.sync.Silent,
		NomadAllow: n.cfg.NomadAllow, Logger: n.log,
	})
	n.Operator = operate.New(operate.Config{
		Root: n.cfg.Root, Manager: n.manager, Journal: n.journal, Audit: n.audit, Kernel: n.kernel,
		Silent: n.views.NotReady, Stale: n.Named.Stale, RetrySnapshot: n.controller.RetrySnapshot,
		ForgetClaim: n.controller.ForgetClaim, ForgetSnapshot: n.controller.ForgetSnapshot,
		ForgetAttachment: n.controller.ForgetAttachment,
		RetryGroup:       n.controller.RetryGroup, BootID: n.bootID, Logger: n.log,
		Accepted: func() { n.controller.LossAccepted(); n.Named.LossAccepted(); n.Ephemeral.Wake() },
	})
	list := listing{
		n.controller, n.made, n.sync, n.catalog, &n.changed,
		[]func(context.Context) error{ownSources(n.api, n.loaded, n.file), n.Named.Load, n.Bindings.Load},
	}
	if n.cluster != nil {
		list.sources = append(list.sources, n.cluster.Kube.Run)
	} else {
		list.sources = append(list.sources, n.Ephemeral.Load)
	}
	n.Transfer = takeover.New(takeover.Config{
		Layout: n.layout, NodeName: n.cfg.Name, Kernel: n.kernel, Journal: n.journal, BootID: n.bootID, Audit: n.audit,
		Pods: list.pods, ContainersRan: n.ContainersRan, RegistrationDir: n.cfg.RegistrationDir,
		Client: clients(n.cfg, secrets{n}, n.tokens, nil, n.log), Logger: n.log,
	})
	n.Registrar = operate.NewRegistrar(operate.RegistrarConfig{
		Dir: n.cfg.RegistrationDir, Journal: n.journal, Audit: n.audit, Logger: n.log,
		Controllers: n.Drivers,
	})
}

// newViews makes the views that the node API shows.
func (n *Node) newViews(storage *storageid.Keeper) *operate.Views {
	c := operate.ViewsConfig{
		Catalog: n.catalog, Controller: n.controller, Manager: n.manager, Journal: n.journal,
		JournalPath: filepath.Join(n.cfg.StateDir, "state.db"), Manifests: n.cfg.Manifests,
		Inputs: []func() []source.Problem{
			n.api.Problems, n.catalog.Problems, storage.Problems,
			func() []source.Problem { return append(n.Named.Problems(), n.Bindings.Problems()...) },
			operate.NodeIDProblems(n.controller.OtherNodeIDs),
		},
		Cluster: func() []server.Problem { return n.cluster.Problems() },
		Away:    func() string { return n.cluster.AwayText() }, Kept: func() map[string]string { return n.Bindings.Kept() },
		Sockets: func() []registration.SocketStatus { return n.registry.Sockets() }, Sync: n.sync, Changed: n.changed.next,
	}
	if n.file != nil {
		c.Files = n.file.Problems
	}
	if n.runtime != nil {
		c.Runtime = n.runtime
	}
	return operate.NewViews(c)
}

// wireManager makes the loop and the callbacks by which it asks the other rooms.
func (n *Node) wireManager(runtime manager.Containers, store manager.Store) error {
	var err error
	n.manager, err = manager.New(manager.Config{
		Containers: runtime, Sources: n.cfg.sources(), BootID: n.bootID, Ladders: n.cfg.Ladders,
		Store:    operate.Recorded{Store: store, Catalog: func() *source.Catalog { return n.catalog }},
		Kernel:   away.Kernel{Kernel: n.kernel, Helpers: n.helpers, Allow: n.cfg.HostPaths},
		Attacher: n.controller, Logger: n.log, InUseHandshake: n.cfg.Cluster != nil, HoldAtLimit: n.cfg.Cluster == nil,
		OnExpanded: func(v state.Volume) {
			n.controller.NodeSize(v.ID, v.SizeBytes)
			n.cluster.Expanded(v)
		},
		BeforeExpand: func(ctx context.Context, v state.Volume) { n.cluster.Expanding(ctx, v) },
		Within:       watch.Within, Dead: n.mounts.Dead, Stray: watch.Stray, Reason: away.Reason,
		Place: n.layout.Place, OnUnrecorded: n.controller.AllUsageChanged,
		OnGone: n.controller.UsageChanged, BeforeUnpublish: n.parts.BeforeUnpublish, Unmount: n.parts.UnmountBy,
		OnCall: func(c manager.EndedCall) {
			n.Recorder.Record(c)
			n.cluster.CallEnded(c)
			if n.measured != nil {
				n.measured.Call(c)
			}
			if n.cfg.OnCall != nil {
				n.cfg.OnCall(c)
			}
		},
	})
	n.Startup = source.NewStartup(n.manager)
	return err
}

// wireCatalog makes the catalog of objects, which reports to the loop what pods want.
func (n *Node) wireCatalog(allocatable corev1.ResourceList, key []byte) error {
	labels, err := selinux.Read(n.cfg.SELinuxMount)
	if err != nil {
		return err
	}
	n.catalog = source.New(source.Config{
		Resolve: resolve.Config{
			Layout: n.layout, NodeName: n.cfg.Name, NodeLabels: n.cfg.Labels, Builtins: n.builtins.Names(),
			SELinux: labels, InlineAllow: n.cfg.InlineAllow, Translate: n.cfg.translated(), Allocatable: allocatable,
			ClusterAttach: n.cfg.Cluster != nil, Certificates: n.cfg.Cluster != nil, Tokens: n.cfg.issuesTokens(),
			RevisionKey: key, VolumesPerPod: n.cfg.VolumesPerPod,
		},
		Sink: sink{n}, Remote: source.Kube, Made: made.Name, Logger: n.log,
		Remains: func(uid state.PodUID) bool { return n.Remains(uid) },
		Demand:  func(pod source.Key, objects []source.Key) { n.cluster.Demand(pod, objects) },
	})
	n.made = made.New(made.Config{
		Catalog: n.catalog, Controller: n.controller, Remote: source.Kube, Translate: n.cfg.translated(),
		Shown: func() { n.changed.send(); n.Bindings.Wake() }, Silent: n.sync.Silent,
		Logger: n.log, OwnClass: made.OwnClasses{named.Name: named.ClassOf}, SnapshotHandles: n.cfg.SnapshotHandles,
		FSTypes: n.cfg.FSTypes,
	})
	n.catalog.Subscribe(func(key source.Key) {
		n.made.Changed(key)
		n.cluster.ObjectChanged(key)
		n.changed.send()
	})
	return nil
}
