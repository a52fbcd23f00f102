package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/cluster"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/drivers"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/token"
	"github.com/csi-volmgr/csi-volmgr/internal/doors/containers"
	"github.com/csi-volmgr/csi-volmgr/internal/host/cri"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/metrics"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/operate"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/recorder"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/takeover"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/selinux"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bootIDFile names this boot of the node (proc(5)).
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Config is the configuration of a node. Root, StateDir and Name are required.
type Config struct {
	// Root is the directory below which volumes are mounted, in the kubelet's layout.
	Root string
	// StateDir is the directory of the journal and of the embedded driver's data.
	StateDir string
	// RuntimeDir is a directory that does not outlive the boot, such as /run/csi-volmgr. If it is "",
	// volumes with secrets are published again after a restart.
	RuntimeDir string
	// Name is the node's name. Labels are its labels if no cluster has a Node for it.
	Name   string
	Labels map[string]string
	// StorageID is what the names of new volumes have of this node, or storageid.None; "" means what they had
	// before, or an id that follows from the machine's.
	StorageID string
	// RegistrationDir holds the drivers' registration sockets; "" means Root/plugins_registry.
	RegistrationDir string
	// RegistrationShared is set if a kubelet watches RegistrationDir too: then only it tells registrars the result.
	RegistrationShared bool
	// Manifests is a directory of manifests to watch; "" means none.
	Manifests string
	// HostPaths lists the clean absolute paths at or below which hostPath and local volumes may be; nil means none.
	HostPaths []string
	// Images lists the clean absolute paths at or below which layouts of OCI images are, for image volumes.
	Images []string
	// ImageService is the endpoint of the container runtime's image service, such as
	// unix:///run/containerd/containerd.sock, for images that no layout has; "" means none.
	ImageService string
	// Cluster is how to reach the API server that binds pods to the node of this name and attaches its
	// volumes; nil means none. New sets its request limits and its content type if they are unset.
	Cluster *rest.Config
	// NodeAlive is how the Node object shows that this daemon runs; the zero value means not at all.
	NodeAlive report.Alive
	// ContainerRuntime is the endpoint of the container runtime that must confirm that a removed pod has
	// no running container, such as unix:///run/containerd/containerd.sock. If it is "", the word of the
	// pod's source is enough.
	ContainerRuntime string
	// LocalDriver serves the embedded driver in this process.
	LocalDriver bool
	// Tokens makes service account tokens for drivers that want them; nil if nothing makes them.
	Tokens csiclient.TokenSource
	// Helper starts a helper process, from this or another program that calls [ServeHelper]. If it is
	// nil, calls on storage run in this process, which then cannot end while one of them hangs
	// ([isolate.Config.Command]).
	Helper isolate.Command
	// SELinuxMount tells which volumes are mounted with their pod's label; "" means selinux.Auto.
	SELinuxMount selinux.Mode
	// InlineAllow lists the namespaces that may use a driver's inline volumes; nil allows every namespace.
	InlineAllow []resolve.InlineRule
	// VolumesPerPod is how many volumes the containers of a pod may use; 0 is any number.
	VolumesPerPod int
	// SnapshotHandles lists the namespaces whose claims may name a snapshot by its driver's handle; * is any.
	SnapshotHandles []string
	// FSTypes are the file system types of drivers' volumes whose class names none.
	FSTypes map[state.DriverName]string
	// NomadAllow is what Nomad's volumes may have besides their own claims; nil is nothing.
	NomadAllow []named.NomadRule
	// Translate lists the in-tree kinds of volumes that are translated to their CSI drivers
	// ([translate.Kinds]); nil means all.
	Translate []string
	// Deadlines has the deadlines of calls by driver; resolve.Any stands for every other driver.
	Deadlines map[state.DriverName]csiclient.Deadlines
	// DriverUIDs lists, by driver, the users besides root whose processes may be the driver.
	DriverUIDs map[state.DriverName][]uint32
	// Controllers are the endpoints of drivers' controllers that have one of their own.
	Controllers map[state.DriverName]controller.Endpoint
	// Ladders tell what to do about unmounts that keep failing; without one, only normal unmounts are made.
	Ladders plan.Ladders
	// Metrics registers the metrics; nil means that there are none.
	Metrics prometheus.Registerer
	// OnCall, if not nil, is called for every driver call that ended, in the manager's goroutine: it must not block.
	OnCall func(manager.EndedCall)
	// Logger is where the node logs; nil means slog.Default.
	Logger *slog.Logger

	faultsEvery, waitPatience time.Duration // for tests; 0 means the default of watch.MountsConfig and events.Config
}

// Node is one node's volume manager. Any goroutine may call its methods.
type Node struct {
	*drivers.Drivers                   // registered drivers, and their controllers
	*containers.Giver                  // mounts of containers (server.Containers)
	*operate.Objects                   // objects of clients (server.Objects)
	*operate.Operator                  // operators' verbs (server.Operator, server.Drainer)
	*operate.Registrar                 // drivers of driver register (server.Registrar)
	*recorder.Recorder                 // the last calls of each volume (server.Trace)
	*stats.Collector                   // how full volumes are (server.Stats)
	operate.Pods                       // MountPod and UnmountPod
	source.Startup                     // Started
	*takeover.Transfer                 // adopt and release, for a Node that does not run
	Named              *named.Provider // volumes that Docker, podman, mount -t csi and Nomad name

	cfg    Config
	log    *slog.Logger
	layout state.Layout

	root       *os.File                      // holds the lock on Root
	sweeps     []func(context.Context) error // cleanup that runs once, after the start
	journal    *journal.Bolt
	helpers    *isolate.Pool
	kernel     *mount.Kernel
	mounts     *watch.Mounts
	manager    *manager.Manager
	controller *controller.Controller
	catalog    *source.Catalog
	made       *made.Provider
	sync       *source.SyncTracker
	views      *operate.Views
	api        *api.Provider
	file       *file.Provider // nil without Manifests
	registry   *registration.Watcher
	cluster    *cluster.Cluster   // nil without Cluster
	runtime    *cri.Runtime       // nil without ContainerRuntime
	images     *cri.Images        // nil without ImageService
	metrics    *csiclient.Metrics // nil without Metrics, like measured
	measured   *metrics.Metrics
	tokens     csiclient.TokenSource // nil without Tokens
	parts      *containers.Parts
	builtins   *builtins.Set
	audit      *audit.Log
	bootID     string

	changed signal        // objects of every kind, problems
	loaded  chan struct{} // closed when the objects applied earlier are loaded
}

// New opens the journal and wires everything; nothing runs until Run. It fails if another daemon uses the
// root or the journal, or if a kubelet runs on the root.
func New(cfg Config) (_ *Node, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Root = filepath.Clean(cfg.Root)
	n := &Node{
		cfg: cfg, log: cfg.Logger, layout: state.Layout{Root: cfg.Root},
		audit: audit.Open(cfg.StateDir, nil), loaded: make(chan struct{}),
		Recorder: &recorder.Recorder{},
	}
	if n.log == nil {
		n.log = slog.Default()
	}
	if cfg.Tokens != nil {
		n.tokens = token.NewCache(cfg.Tokens, n.log)
	}
	if n.cfg.RegistrationDir == "" {
		n.cfg.RegistrationDir = n.layout.Registry()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.root, err = disk.Claim(n.layout, n.cfg.RegistrationDir); err != nil {
		return nil, err
	}
	storage, err := storageid.Open(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	if n.journal, err = journal.OpenBolt(filepath.Join(cfg.StateDir, "state.db")); err != nil {
		return nil, err
	}
	if n.metrics, n.measured, err = measure(cfg.Metrics); err != nil {
		return nil, err
	}
	if err := n.wire(storage); err != nil {
		return nil, err
	}
	asker := newAsker(n.builtins, n.manager, n.Drivers, n.controller, n.mounts)
	n.Collector = stats.New(stats.Config{
		// The collector learns of changes in the controller through the manager: the catalog shows them
		// as a source that speaks.
		Subjects: asker.Subjects, Question: asker.Question, Changed: n.manager.Changed,
		OnHealth: n.cluster.Health, Logger: n.log,
	})
	return n, n.count()
}

// check reports the first field that is missing or not an absolute path.
func (c Config) check() error {
	for _, f := range []struct{ field, path, or string }{
		{"Root", c.Root, ""},
		{"StateDir", c.StateDir, ""},
		{"RegistrationDir", c.RegistrationDir, " or none"},
		{"Manifests", c.Manifests, " or none"},
	} {
		if !filepath.IsAbs(f.path) && (f.or == "" || f.path != "") {
			return fmt.Errorf("new node: %s: found %q, want an absolute path%s", f.field, f.path, f.or)
		}
	}
	if c.Name == "" {
		return errors.New("new node: Name: found none, want the node's name")
	}
	return nil
}

// Views returns what the node API shows besides the manager's own.
func (n *Node) Views() *operate.Views { return n.views }

// Manager returns the volume manager.
func (n *Node) Manager() *manager.Manager { return n.manager }

// Close releases what New took, for a Node that does not run. Run calls it itself.
func (n *Node) Close() error {
	errs := []error{n.audit.Close()}
	if n.helpers != nil {
		if err := n.helpers.Close(); err != nil {
			n.log.Warn("helper processes with hanging calls are left behind", "err", err)
		}
	}
	if n.runtime != nil {
		_ = n.runtime.Close() // fails only if Run has closed it
	}
	if n.images != nil {
		errs = append(errs, n.images.Close())
	}
	if n.journal != nil {
		err := n.journal.Close()
		errs = append(errs, err)
		if spareErr := n.journal.SpareErr(); err == nil && spareErr != nil {
			n.log.Warn("journal is whole, but its spare copy is old or missing", "err", spareErr)
		}
	}
	if n.root != nil {
		errs = append(errs, n.root.Close())
	}
	return errors.Join(errs...)
}

// secrets reads secrets from the catalog, which is made after the readers.
type secrets struct{ n *Node }

// Secret returns [controller.ErrNoSecret] only once every source has delivered all its objects.
func (s secrets) Secret(ctx context.Context, ref state.SecretRef) (map[string]string, error) {
	values, err := s.read(ctx, ref)
	gone := errors.Is(err, source.ErrNotFound) || apierrors.IsNotFound(err)
	if gone && len(s.n.sync.Silent()) == 0 {
		return nil, controller.ErrNoSecret
	}
	return values, err
}

func (s secrets) read(ctx context.Context, ref state.SecretRef) (map[string]string, error) {
	key := source.Key{Kind: resolve.KindSecret, Namespace: ref.Namespace, Name: ref.Name}
	if s.n.cluster == nil || s.n.catalog.Get(key) != nil {
		return s.n.catalog.Secret(ctx, ref)
	}
	secret, err := s.n.cluster.Kube.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	return source.SecretValues(secret)
}

// sink passes what pods want to the manager, and records which sources have spoken.
type sink struct{ n *Node }

func (s sink) SetPod(p state.PodWant)     { s.n.manager.SetPod(p) }
func (s sink) RemovePod(uid state.PodUID) { s.n.manager.RemovePod(uid) }
func (s sink) SourceSynced(provider string) {
	s.n.sync.Spoke(provider)
	s.n.manager.SourceSynced(provider)
	s.n.changed.send()
	s.n.Objects.SourceSpoke()
	s.n.made.Wake()
}

// signal wakes all its waiters at the next change.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
