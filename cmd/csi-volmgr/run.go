package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/selinux"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// runOptions has the flags of run; the fields of its configuration file have the same names.
type runOptions struct {
	// node is the part of the node's configuration that flags set. nodeConfig adds the rest.
	node         wire.Config
	rules        rules
	socket       string
	httpAddress  string // "" is off
	page         bool
	profiles     bool
	readers      string // "" is none
	traces       string // "" is nowhere
	plugin       bool
	pluginSocket string
	tokenKey     string // "" is none
	tokenIssuer  string
	kubeconfig   string // "" is no cluster
	config       string
	log          logOptions
}

// rules are the values of flags that have a syntax of their own.
type rules struct {
	nodeLabels, inlineAllow, snapshotHandles, nomadAllow, translate, fsTypes, deadlines, driverUIDs []string
	controllers, unmountSteps                                                                       []string
}

type logOptions struct{ level, format string }

const defaultRoot = "/var/lib/kubelet"

func (p *program) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon of this node",
		Long: `Run the daemon of this node, as root, until it is told to stop. Mounted volumes
stay mounted when it stops, and it takes them over when it starts again.

Every flag but --config is also a field of the configuration file (YAML):

  root-dir: /var/lib/csi-volmgr/root
  manifests: /etc/csi-volmgr/manifests
  local-driver: true

A flag wins over the file. An unknown field is an error.`,
		Example: `  csi-volmgr run --local-driver
  csi-volmgr run --config=/etc/csi-volmgr/config.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := p.completed(cmd, &o)
			if err != nil {
				return err
			}
			return p.node(cmd.Context(), o, logger)
		},
	}
	daemonFlags(cmd, &o)
	logFlags(cmd, &o.log)
	return cmd
}

// completed completes the daemon's options from the configuration file, and returns the daemon's logger.
func (p *program) completed(cmd *cobra.Command, o *runOptions) (*slog.Logger, error) {
	var file config
	if o.config != "" {
		var err error
		if file, err = readConfig(cmd, o.config); err != nil {
			return nil, err
		}
	}
	o.socket = p.socket
	if err := o.complete(); err != nil {
		return nil, file.locate(err)
	}
	if err := p.needRoot(cmd); err != nil {
		return nil, err
	}
	logger := p.logger(o.log)
	klog.SetSlogLogger(logger)
	return logger, nil
}

// daemonFlags adds the flags that describe the node to the daemon.
func daemonFlags(cmd *cobra.Command, o *runOptions) {
	f := cmd.Flags()
	f.StringVar(&o.node.Root, "root-dir", defaultRoot, "`directory` below which volumes are mounted and drivers register")
	f.StringVar(&o.node.StateDir, "state-dir", "/var/lib/csi-volmgr", "`directory` of the journal")
	f.StringVar(&o.httpAddress, "http-address", "127.0.0.1:9811",
		"`address` of /metrics, /healthz, /readyz and the status page; \"\" or off for none")
	f.BoolVar(&o.page, "page", true, "serve the status page at the http address; it shows the names of pods and volumes "+
		"to every user of this machine")
	f.BoolVar(&o.profiles, "profiles", false, "serve net/http/pprof on the socket, to root")
	f.StringVar(&o.readers, "api-readers", "", "`group` whose members may read on the socket, and change nothing "+
		"(default none)")
	f.StringVar(&o.traces, "traces-endpoint", "", "`URL` of an OpenTelemetry collector (OTLP over HTTP) that "+
		"receives a span of each call, such as http://127.0.0.1:4318 (default none)")
	f.StringVar(&o.node.Manifests, "manifests", "", "`directory` of manifests to watch (default none)")
	f.StringArrayVar(&o.node.HostPaths, "host-path-allow", nil,
		"`directory` of the node at or below which hostPath and local volumes may be; repeatable (default none)")
	f.StringArrayVar(&o.node.Images, "image-layouts", nil,
		"`directory` at or below which layouts of OCI images are, for image volumes; repeatable (default none)")
	f.StringVar(&o.node.ImageService, "image-service-endpoint", "",
		"`endpoint` of a container runtime's image service (CRI), such as unix:///run/containerd/containerd.sock, for image "+
			"volumes that no layout has (default none)")
	o.node.SELinuxMount = selinux.Auto
	f.Var(oneOf{(*string)(&o.node.SELinuxMount), selinux.Modes()}, "selinux-mount",
		"mount volumes with their pod's SELinux label: all (on, and auto), ReadWriteOncePod only (one-pod), none (off)")
	f.BoolVar(&o.node.LocalDriver, "local-driver", false, "also serve the embedded driver local.csi-volmgr.dev")
	f.StringVar(&o.tokenKey, "token-signing-key", "",
		"PEM `file` of the private key that signs service account tokens if no cluster issues them (default none)")
	f.StringVar(&o.tokenIssuer, "token-issuer", "",
		"`URL` that those tokens name as their issuer (default https://NODE-NAME)")
	f.StringVar(&o.node.RegistrationDir, "registration-dir", "",
		"`directory` of drivers' registration sockets (default ROOT-DIR/plugins_registry)")
	f.BoolVar(&o.node.RegistrationShared, "registration-shared", false,
		"a kubelet watches that directory too: only it tells registrars whether they are registered")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server that binds pods to this "+
		"node, or in-cluster for the pod's service account (default no cluster)")
	f.DurationVar(&o.node.NodeAlive.Heartbeat, "node-condition", 0,
		"`duration` between two heartbeats of the Node's condition "+string(report.ReadyCondition)+
			", such as 1m (default no condition)")
	f.BoolVar(&o.node.NodeAlive.Taint, "not-ready-taint", false, "put the taint "+report.NotReadyTaint+
		":NoSchedule on the Node when the daemon stops, and take it off when it is ready; a node's own identity may not")
	f.StringVar(&o.node.ContainerRuntime, "container-runtime-endpoint", "",
		"`endpoint` of a container runtime (CRI), such as unix:///run/containerd/containerd.sock: a removed pod's "+
			"volumes are unmounted only when it says that no container of the pod lives (default none)")
	f.StringVar(&o.config, "config", "", "configuration `file`")
	f.IntVar(&o.node.VolumesPerPod, "volumes-per-pod", 0, "`number` of volumes that the containers of a pod may use; a "+
		"pod above it gets none, and keeps those that it has (default no limit)")
	ruleFlags(f, &o.rules)
	identityFlags(cmd, o)
	pluginFlags(cmd, o)
}

// identityFlags adds the flags that say which node this is.
func identityFlags(cmd *cobra.Command, o *runOptions) {
	f := cmd.Flags()
	f.StringVar(&o.node.Name, "node-name", "", "`name` of this node (default the host's)")
	f.StringVar(&o.node.StorageID, "storage-id", "", "`ID` of this node in the names of the volumes that it makes, fixed "+
		"at its first start; none for names without one (default follows from the machine's id)")
}

// ruleFlags adds the flags whose values have a syntax of their own.
func ruleFlags(f *pflag.FlagSet, r *rules) {
	f.StringArrayVar(&r.nodeLabels, "node-label", nil, "`KEY=VALUE` of a label of this node, with which the node "+
		"affinity of PersistentVolumes is compared if no cluster has the Node; repeatable (default none)")
	f.StringArrayVar(&r.inlineAllow, "inline-allow", nil,
		"`NAMESPACE/DRIVER` that may have volumes defined in pods, of CSI and of network storage "+
			"(kubernetes.io/nfs, iscsi, fc, cephfs, glusterfs), * for any, or none; repeatable (default all)")
	f.StringArrayVar(&r.snapshotHandles, "snapshot-handle-allow", nil,
		"`NAMESPACE` whose claims may name any snapshot by its driver's handle "+
			"(annotation csi-volmgr.dev/snapshot-handle), * for any; repeatable (default none)")
	f.StringArrayVar(&r.nomadAllow, "nomad-allow", nil, "`RULE` of what the volumes of one of Nomad's namespaces, * for "+
		"any, may have: NOMAD-NAMESPACE/namespace=NAMESPACE for claims of another namespace, NOMAD-NAMESPACE/driver=DRIVER "+
		"for volumes that exist, NOMAD-NAMESPACE/owner for uid, gid and mode of both; repeatable (default none)")
	f.StringArrayVar(&r.translate, "translate", nil, "`KIND` of in-tree volumes, such as awsElasticBlockStore, "+
		"that is translated to its CSI driver, or none; repeatable (default all)")
	f.StringArrayVar(&r.fsTypes, "default-fstype", nil, "`DRIVER=FSTYPE` of its volumes whose class names no file "+
		"system, as of external-provisioner's --default-fstype; repeatable (default none)")
	f.StringArrayVar(&r.driverUIDs, "driver-uid", nil,
		"`DRIVER=UID` of a user besides root whose process may be the driver and get its secrets; repeatable")
	f.StringArrayVar(&r.controllers, "driver-controller", nil, "`DRIVER=ENDPOINT` of its controller, if that is not the "+
		"driver's own: an absolute path, or tcp://HOST:PORT,ca=FILE,cert=FILE,key=FILE; repeatable (default none)")
	f.StringArrayVar(&r.deadlines, "deadline", nil, "`DRIVER/RPC=DURATION` that a call may take, * for every "+
		"driver; repeatable (default 2m)")
	f.StringArrayVar(&r.unmountSteps, "unmount-steps", nil,
		"`DRIVER=STEPS` for an unmount that keeps failing, such as kubernetes.io/nfs=force@5m,lazy@1h, * for every "+
			"driver; each may lose data that was not written back; repeatable (default none)")
}

func logFlags(cmd *cobra.Command, o *logOptions) {
	o.level, o.format = "info", "text"
	cmd.Flags().Var(oneOf{&o.level, []string{"debug", "info", "warn", "error"}}, "log-level", "lowest level to log")
	cmd.Flags().Var(oneOf{&o.format, []string{"text", "json"}}, "log-format", "form of a log line")
}

// complete sets options that follow from others, and checks all.
func (o *runOptions) complete() error {
	if o.httpAddress == "off" {
		o.httpAddress = ""
	}
	if o.httpAddress != "" {
		if _, _, err := net.SplitHostPort(o.httpAddress); err != nil {
			return flagf("http-address", o.httpAddress, "expected HOST:PORT, or off")
		}
	}
	alive := o.node.NodeAlive
	if alive.Heartbeat != 0 && alive.Heartbeat < report.LeastHeartbeat {
		return flagf("node-condition", alive.Heartbeat, "expected at least %s, or 0 for none", report.LeastHeartbeat)
	}
	if o.kubeconfig == "" && alive != (report.Alive{}) {
		return usagef("--node-condition and --not-ready-taint: expected --kubeconfig with them, which says where the Node is")
	}
	if o.node.RegistrationDir == "" && o.node.Root != "" {
		o.node.RegistrationDir = filepath.Join(o.node.Root, "plugins_registry")
	}
	for _, d := range []struct {
		flag string
		path *string
	}{
		{"root-dir", &o.node.Root},
		{"state-dir", &o.node.StateDir},
		{"registration-dir", &o.node.RegistrationDir},
		{"socket", &o.socket},
	} {
		if !filepath.IsAbs(*d.path) {
			return flagf(d.flag, *d.path, "expected an absolute path")
		}
		*d.path = filepath.Clean(*d.path)
	}
	if err := o.readRules(); err != nil {
		return err
	}
	for flag, dirs := range map[string][]string{"host-path-allow": o.node.HostPaths, "image-layouts": o.node.Images} {
		for i, dir := range dirs {
			if !filepath.IsAbs(dir) {
				return flagf(flag, dir, "expected an absolute path")
			}
			dirs[i] = filepath.Clean(dir)
		}
	}
	for flag, path := range map[string]string{"manifests": o.node.Manifests, "volume-plugin-socket": o.pluginSocket} {
		if path != "" && !filepath.IsAbs(path) {
			return flagf(flag, path, "expected an absolute path")
		}
	}
	for flag, endpoint := range map[string]string{
		"container-runtime-endpoint": o.node.ContainerRuntime, "image-service-endpoint": o.node.ImageService,
	} {
		if path, ok := strings.CutPrefix(endpoint, "unix://"); endpoint != "" && !(ok && filepath.IsAbs(path)) {
			return flagf(flag, endpoint, "expected unix:// and an absolute path")
		}
	}
	return o.completeTokens()
}

// readRules reads the flags that have a syntax of their own.
func (o *runOptions) readRules() error {
	var inline, handles, nomad, kinds, types, limits, uids, ends, steps, label error
	o.node.InlineAllow, inline = inlineRules(o.rules.inlineAllow)
	o.node.SnapshotHandles, handles = namespaces("snapshot-handle-allow", o.rules.snapshotHandles)
	o.node.NomadAllow, nomad = nomadRules(o.rules.nomadAllow)
	o.node.Translate, kinds = translated(o.rules.translate)
	o.node.FSTypes, types = fsTypes(o.rules.fsTypes)
	o.node.Deadlines, limits = deadlines(o.rules.deadlines)
	o.node.DriverUIDs, uids = driverUIDs(o.rules.driverUIDs)
	o.node.Controllers, ends = controllers(o.rules.controllers)
	o.node.Ladders, steps = unmountSteps(o.rules.unmountSteps)
	o.node.Labels, label = nodeLabels(o.rules.nodeLabels)
	_, group := readers(o.readers)
	if n := o.node.VolumesPerPod; n < 0 {
		return flagf("volumes-per-pod", n, "expected a number above 0, or 0 for no limit")
	}
	if err := storageid.Check(o.node.StorageID); err != nil {
		return flagf("storage-id", o.node.StorageID, "%v", err)
	}
	if label == nil && len(o.node.Labels) > 0 && o.kubeconfig != "" {
		label = usagef("--node-label and --kubeconfig: expected one of them; in a cluster the Node's labels hold")
	}
	return cmp.Or(inline, handles, nomad, kinds, types, limits, uids, ends, steps, group, label)
}

// completeTokens sets the issuer of tokens, which may follow from the node's name.
func (o *runOptions) completeTokens() error {
	if err := hostName(&o.node.Name); err != nil {
		return err
	}
	switch {
	case o.tokenKey == "" && o.tokenIssuer != "":
		return flagf("token-issuer", o.tokenIssuer, "expected --token-signing-key with it")
	case o.tokenKey != "" && !filepath.IsAbs(o.tokenKey):
		return flagf("token-signing-key", o.tokenKey, "expected an absolute path")
	case o.tokenKey != "" && o.tokenIssuer == "":
		o.tokenIssuer = "https://" + o.node.Name
	}
	return nil
}

// hostName sets an empty name to the host's name.
func hostName(name *string) error {
	if *name != "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find this host's name (give one with a flag instead): %w", err)
	}
	*name = strings.ToLower(host)
	return nil
}

// needRoot fails if the program does not run as root, and says what to do.
func (p *program) needRoot(cmd *cobra.Command) error {
	if p.euid() == 0 {
		return nil
	}
	return fmt.Errorf("%s needs root: %s", cmd.CommandPath(), asRoot(p.args))
}

func (p *program) logger(o logOptions) *slog.Logger { return newLogger(p.stderr, o) }

func newLogger(w io.Writer, o logOptions) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil {
		panic(err) // the flag has been checked
	}
	opts := &slog.HandlerOptions{Level: level}
	if o.format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
