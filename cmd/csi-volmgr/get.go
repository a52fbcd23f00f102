package main

import (
	"context"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/spf13/cobra"
)

// getOptions has the arguments and flags of get.
type getOptions struct {
	namespace string
	all       bool // every namespace
	output    string
	watch     bool
	pod       string // mounts only
	container string // mounts of one pod only
	recursive bool   // with container: the runtime can mount read-only recursively
	// mountOptions and userNamespaces tell what else the runtime can do for a container.
	mountOptions, userNamespaces bool
	selector                     string          // labels
	labelled                     map[string]bool // the keys of objects with these labels; nil without a selector
	names                        []string
}

// getKinds lists the kinds that get lists.
var getKinds = append([]string{
	"pods", "volumes", "drivers", "pv", "pvc", "snapshots", "groupsnapshots", "schedules", "mounts", "stats", "problems",
}, objectKinds...)

const getHelp = `List pods, volumes, drivers, persistent volumes (pv), claims (pvc), snapshots, groupsnapshots,
schedules of snapshots, or mounts, or several kinds (pv,pvc); all is pods, claims, persistent volumes,
volumes and drivers.

Mounts are what an agent needs to run a pod's containers: for each of its volumes
the path on this host, whether it is a directory or a block device, whether its
containers have it read-only, and the mount propagation that they ask for; -o wide
notes where they differ, or where another container may replace the path. With
--container they follow that container's spec, in its order: where it wants each
volume, which part of it (subPath and subPathExpr, which this makes and binds),
read-only, recursively read-only, and with which propagation.

Stats are usage and health of volumes, as their drivers or the kernel last reported
them, with the age of each answer. The daemon asks for the usage while users list it,
and for five minutes after; the first listing waits for the answers, for a second at
most. Health is always watched.

Storage classes, csidrivers, configmaps, secrets, volumeattachments, volumesnapshotclasses,
volumegroupsnapshotclasses and their contents are those that were applied or read, with
their names and keys but without values. With -l only objects with these labels are listed.

A table of drivers shows CSI drivers and the built-in kinds that have volumes; with
-o wide all kinds. A driver is Unusable while this node lacks a program for it.

Problems are errors in the manifests, with file, line and field.`

func (p *program) getCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use: "get (pods|volumes|drivers|pv|pvc|snapshots|groupsnapshots|schedules|mounts|stats|problems|" +
			"storageclasses|csidrivers|configmaps|secrets) [NAME...]",
		Short: "List objects, one line each",
		Long:  getHelp,
		Example: `  csi-volmgr get pods -A
  csi-volmgr get volumes -o wide
  csi-volmgr get pvc data -o yaml
  csi-volmgr get pv,pvc
  csi-volmgr get pods --watch
  csi-volmgr get mounts --pod web -o json
  csi-volmgr get mounts --pod web -o jsonpath='{range .items[*]}{.name} {.hostPath}{"\n"}{end}'
  csi-volmgr get mounts --pod web --container app -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kinds, err := several(args)
			if err != nil {
				return err
			}
			if kinds != nil {
				return p.getSeveral(cmd.Context(), kinds, o, args[0] == "all")
			}
			kind, err := o.parse(args)
			if err != nil {
				return err
			}
			return p.get(cmd.Context(), kind, o)
		},
	}
	p.completes(cmd, getKinds...)
	listFlags(cmd, &o)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "then print every change")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"`labels` of pods, claims, persistent volumes, snapshots and objects, such as app=web")
	cmd.Flags().Var(nameFlag{&o.pod}, "pod", "mounts of the pod of this `name` only")
	cmd.Flags().Var(nameFlag{&o.container}, "container",
		"mounts for the pod's container of this `name`; makes its subPaths")
	cmd.Flags().BoolVar(&o.recursive, "runtime-recursive-read-only", false,
		"with --container: the runtime can make mounts read-only recursively")
	cmd.Flags().BoolVar(&o.mountOptions, "runtime-mount-options", false,
		"with --container: the runtime can mount with noexec, nodev and nosuid")
	cmd.Flags().BoolVar(&o.userNamespaces, "runtime-user-namespaces", false,
		"with --container: the runtime can map the ids of mounts to a pod's user namespace")
	return cmd
}

// listFlags adds the flags of all verbs that list.
func listFlags(cmd *cobra.Command, o *getOptions) {
	namespaceFlag(cmd, &o.namespace)
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "pods, claims and mounts of every namespace")
	outputFlag(cmd, &o.output)
}

// watchCommand is get --watch under a name of its own.
func (p *program) watchCommand() *cobra.Command {
	o := getOptions{watch: true}
	cmd := &cobra.Command{
		Use:   "watch (pods|volumes|drivers|pv|pvc|snapshots|groupsnapshots) [NAME...]",
		Short: "List objects, then print each change",
		Long:  "List objects, one line each, then print each change until interrupted: get --watch.",
		Example: `  csi-volmgr watch pods -A
  csi-volmgr watch volumes -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := o.parse(args)
			if err != nil {
				return err
			}
			return p.get(cmd.Context(), kind, o)
		},
	}
	listFlags(cmd, &o)
	p.completes(cmd, "pods", "volumes", "drivers", "pv", "pvc", "snapshots", "groupsnapshots")
	return cmd
}

func (o *getOptions) parse(args []string) (kind string, err error) {
	ts, err := targets(args, getKinds...)
	if err != nil {
		return "", err
	}
	kind = ts[0].kind
	for _, t := range ts {
		if t.kind != kind {
			return "", usagef("get one kind at a time, not %s and %s", kind, t.kind)
		}
		if t.name != "" {
			o.names = append(o.names, t.name)
		}
	}
	switch {
	case o.all && len(o.names) > 0:
		return "", usagef("a name needs one namespace: leave out -A")
	case o.pod != "" && kind != "mounts":
		return "", usagef("--pod is for mounts only")
	case o.pod != "" && o.all:
		return "", usagef("--pod needs one namespace: leave out -A")
	case o.watch && kind == "mounts":
		return "", usagef("mounts cannot be watched: watch the pods, or wait for one")
	case kind == "stats" && (o.watch || len(o.names) > 0):
		return "", usagef("stats cannot be watched or named: all are listed, as last reported")
	case kind == "schedules" && o.watch:
		return "", usagef("schedules cannot be watched: watch snapshots")
	case kind == "problems" && (o.watch || len(o.names) > 0):
		return "", usagef("problems cannot be watched and have no names")
	}
	if err := o.checkObjects(kind); err != nil {
		return "", err
	}
	if err := o.checkContainer(kind); err != nil {
		return "", err
	}
	if o.pod != "" {
		o.names = append(o.names, strings.TrimPrefix(o.pod, "pod/"))
	}
	return kind, nil
}

func (p *program) get(ctx context.Context, kind string, o getOptions) error {
	c := p.client()
	defer c.Close()
	if o.selector != "" {
		left, err := selected(ctx, c, kind, o)
		if err != nil {
			return err
		}
		o.labelled = left
	}
	switch kind {
	case "pods":
		return show(ctx, p, o, podResource(c))
	case "volumes":
		return show(ctx, p, o, volumeResource(c))
	case "drivers":
		if err := show(ctx, p, o, driverResource(c)); err != nil {
			return err
		}
		return p.socketProblems(ctx, c, o)
	case "pv":
		return show(ctx, p, o, resource[server.PVStatus]{
			kind: "pv", columns: pvColumns, list: c.PersistentVolumes, watch: c.WatchPersistentVolumes,
			key: func(v server.PVStatus) string { return v.Name },
		})
	case "pvc":
		return show(ctx, p, o, resource[server.ClaimStatus]{
			kind: "pvc", columns: claimColumns, list: c.Claims, watch: c.WatchClaims, namespaced: true,
			key: func(v server.ClaimStatus) string { return v.Namespace + "/" + v.Name },
		})
	case "snapshots":
		return show(ctx, p, o, resource[server.SnapshotStatus]{
			kind: "snapshot", columns: snapshotColumns(), list: c.Snapshots, watch: c.WatchSnapshots, namespaced: true,
			key: func(v server.SnapshotStatus) string { return v.Namespace + "/" + v.Name },
		})
	case "groupsnapshots":
		return show(ctx, p, o, groupResource(c))
	case "schedules":
		return show(ctx, p, o, resource[server.ScheduleStatus]{
			kind: "schedule", columns: scheduleColumns(), list: c.Schedules, namespaced: true,
			key: func(v server.ScheduleStatus) string { return v.Namespace + "/" + v.Name },
		})
	case "stats":
		return show(ctx, p, o, resource[stats.Status]{kind: "stats", columns: statColumns, list: c.Stats})
	case "problems":
		return show(ctx, p, o, resource[server.Problem]{kind: "problem", columns: problemColumns, list: c.Problems})
	case "mounts":
		if o.container != "" {
			return p.getContainerMounts(ctx, c, o)
		}
		return p.getMounts(ctx, c, o)
	default:
		return show(ctx, p, o, objectResource(c, kind))
	}
}

func podResource(c *client.Client) resource[server.PodStatus] {
	return resource[server.PodStatus]{
		kind: "pod", columns: podColumns, list: c.Pods, watch: c.WatchPods, namespaced: true,
		key: podKey,
		find: func(items []server.PodStatus, name string) (server.PodStatus, error) {
			ns, name, _ := strings.Cut(name, "/")
			if v, ok := server.FindPod(items, ns, name); ok {
				return v, nil
			}
			return server.PodStatus{}, server.NotKnown("pod", ns, name, namespacesOf(items, podKey, name))
		},
	}
}

func podKey(v server.PodStatus) string { return v.Pod.Namespace + "/" + v.Pod.Name }

func volumeResource(c *client.Client) resource[server.VolumeStatus] {
	return resource[server.VolumeStatus]{
		kind: "volume", columns: volumeColumns, list: c.Volumes, watch: c.WatchVolumes,
		key:  func(v server.VolumeStatus) string { return string(v.Volume.ID) },
		find: server.FindVolume,
	}
}

// idleBuiltin reports whether a driver is a built-in kind without volumes or calls.
func idleBuiltin(d server.DriverStatus) bool { return d.Builtin && d.Volumes == 0 && d.Calls == 0 }

func driverResource(c *client.Client) resource[server.DriverStatus] {
	return resource[server.DriverStatus]{
		kind: "driver", columns: driverColumns, list: c.Drivers, watch: c.WatchDrivers,
		key:    func(v server.DriverStatus) string { return string(v.Name) },
		hidden: idleBuiltin, hiddenNoun: "built-in kinds without a volume",
	}
}

// getMounts lists the mounts of the named pods or of a namespace.
func (p *program) getMounts(ctx context.Context, c *client.Client, o getOptions) error {
	items := []server.Mount{}
	for _, name := range o.names {
		of, err := c.Mounts(ctx, o.namespace, name)
		if err != nil {
			return err
		}
		items = append(items, of...)
	}
	if len(o.names) == 0 {
		all, err := c.Mounts(ctx, "", "")
		if err != nil {
			return err
		}
		for _, m := range all {
			if o.all || m.Namespace == o.namespace {
				items = append(items, m)
			}
		}
	}
	switch {
	case structured(o.output):
		return p.document(server.List[server.Mount]{Items: items}, o.output)
	case len(items) == 0:
		return writeAll(p.stderr, "Nothing is mounted.\n")
	default:
		return writeTable(p.stdout, mountColumns, items, p.view(o))
	}
}

// socketProblems adds the registration sockets that have a problem.
func (p *program) socketProblems(ctx context.Context, c *client.Client, o getOptions) error {
	if o.watch || structured(o.output) || len(o.names) > 0 {
		return nil
	}
	sockets, err := c.Sockets(ctx)
	if err != nil {
		return err
	}
	bad := slices.DeleteFunc(sockets, func(s server.SocketStatus) bool { return s.Problem == "" })
	if len(bad) == 0 {
		return nil
	}
	if err := writeAll(p.stdout, "\n"); err != nil {
		return err
	}
	return writeTable(p.stdout, socketColumns, bad, p.view(o))
}
