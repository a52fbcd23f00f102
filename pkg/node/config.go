package node

import (
	"log/slog"
	"os/exec"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/selinux"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Any stands for every namespace or every driver in an [InlineRule], and for every other driver in
// [Config.Deadlines].
const Any = resolve.Any

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
	// Socket is where the API is served, for the program csi-volmgr and for package client; "" means
	// nowhere. Version is what the API says of this program.
	Socket, Version string
	// RegistrationDir holds the drivers' registration sockets; "" means Root/plugins_registry.
	RegistrationDir string
	// Manifests is a directory of manifests to watch; "" means none.
	Manifests string
	// HostPaths lists the directories of the node at or below which hostPath and local volumes may be, as
	// clean absolute paths. If it is empty, there are no such volumes.
	HostPaths []string
	// Images lists the directories at or below which layouts of OCI images are, for image volumes, as
	// clean absolute paths.
	Images []string
	// ImageService is the endpoint of the container runtime's image service, such as
	// unix:///run/containerd/containerd.sock, for images that no layout has; "" means none.
	ImageService string
	// Cluster is how to reach the API server that binds pods to the node of this name and attaches its
	// volumes; nil means none. New sets its request limits and its content type if they are unset.
	Cluster *rest.Config
	// Alive is how the Node object shows that this program runs; the zero value means not at all.
	Alive Alive
	// ContainerRuntime is the endpoint of the container runtime that must confirm that a removed pod has
	// no running container, such as unix:///run/containerd/containerd.sock. If it is "", the word of the
	// pod's source is enough.
	ContainerRuntime string
	// LocalDriver serves the embedded driver in this process.
	LocalDriver bool
	// Tokens makes service account tokens for drivers that want them; nil if nothing makes them.
	Tokens csiclient.TokenSource
	// Helper returns a command, not started, of a helper process: this or another program, which calls
	// [ServeHelper]. If it is nil, calls on storage run in this process, which then cannot end while one
	// of them hangs.
	Helper func() *exec.Cmd
	// SELinuxMount tells which volumes are mounted with their pod's label: auto, on, one-pod or off, as
	// `csi-volmgr run --selinux-mount`; "" means auto.
	SELinuxMount string
	// InlineAllow lists the namespaces that may use a driver's inline volumes; nil allows every
	// namespace.
	InlineAllow []InlineRule
	// Translate lists the in-tree kinds of volumes that are translated to their CSI drivers (package
	// translate); nil means all.
	Translate []string
	// Deadlines has the deadlines of calls by driver.
	Deadlines map[state.DriverName]csiclient.Deadlines
	// DriverUIDs lists, by driver, the users besides root whose processes may be the driver.
	DriverUIDs map[state.DriverName][]uint32
	// Ladders tell what to do about unmounts that keep failing. Without one, only normal unmounts are
	// made; the other steps may lose data.
	Ladders plan.Ladders
	// Metrics registers the metrics; nil means that there are none.
	Metrics prometheus.Registerer
	// OnCall, if not nil, is called for every driver call that ended, in the goroutine of the manager: it
	// must not block.
	OnCall func(manager.EndedCall)
	// Logger is where the node logs; nil means slog.Default.
	Logger *slog.Logger
}

// InlineRule allows a driver's inline volumes in a namespace. Both are names, or [Any].
type InlineRule struct {
	Namespace string
	Driver    state.DriverName
}

// Alive is how the Node object shows that the program runs.
type Alive struct {
	// Heartbeat is how often the condition csi-volmgr.dev/VolumesReady is renewed; 0 means that there is none.
	Heartbeat time.Duration
	// Taint adds the taint csi-volmgr.dev/agent-not-ready to the Node when the program stops, and removes
	// it when it is ready.
	Taint bool
}

func (c Config) wired() wire.Config {
	w := wire.Config{
		Root: c.Root, StateDir: c.StateDir, RuntimeDir: c.RuntimeDir, Name: c.Name, Labels: c.Labels,
		RegistrationDir: c.RegistrationDir, Manifests: c.Manifests, HostPaths: c.HostPaths, Images: c.Images,
		ImageService: c.ImageService, Cluster: c.Cluster, NodeAlive: report.Alive(c.Alive),
		ContainerRuntime: c.ContainerRuntime, LocalDriver: c.LocalDriver, Tokens: c.Tokens,
		Helper: isolate.Command(c.Helper), SELinuxMount: selinux.Mode(c.SELinuxMount), Translate: c.Translate,
		Deadlines: c.Deadlines, DriverUIDs: c.DriverUIDs, Ladders: c.Ladders, Metrics: c.Metrics,
		OnCall: c.OnCall, Logger: c.Logger,
	}
	if c.InlineAllow != nil { // an empty list allows none
		w.InlineAllow = make([]resolve.InlineRule, 0, len(c.InlineAllow))
	}
	for _, r := range c.InlineAllow {
		w.InlineAllow = append(w.InlineAllow, resolve.InlineRule(r))
	}
	return w
}
