package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completeTimeout bounds how long a shell waits for names after a tab.
const completeTimeout = 2 * time.Second

// completes makes the shell complete cmd's first argument to one of kinds, or to KIND/NAME, and further
// arguments to the daemon's names of that kind.
func (p *program) completes(cmd *cobra.Command, kinds ...string) {
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, begun string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return p.names(cmd, kindOf(args[0]), "")
		}
		if word, _, ok := strings.Cut(begun, "/"); ok {
			return p.names(cmd, kindOf(word), word+"/")
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
}

// completesVolumes makes the shell complete cmd's arguments to volumes; otherwise is the directive for
// other arguments.
func (p *program) completesVolumes(cmd *cobra.Command, otherwise cobra.ShellCompDirective) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		names, directive := p.names(cmd, "volumes", "")
		if directive == cobra.ShellCompDirectiveNoFileComp {
			directive = otherwise
		}
		return names, directive
	}
}

// names returns the daemon's names of a kind, each after the prefix.
func (p *program) names(cmd *cobra.Command, kind, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c := p.client()
	defer c.Close()
	ns, _ := cmd.Flags().GetString("namespace") // without that flag, ""
	names, err := namesOf(ctx, c, kind, ns)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeFlags makes the shell complete the values of flags, of cmd and its subcommands: those with a
// fixed set of words, and names.
func (p *program) completeFlags(cmd *cobra.Command) {
	kinds := map[string]string{"namespace": "namespaces", "pod": "pods", "driver": "drivers"}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var complete cobra.CompletionFunc
		switch v := f.Value.(type) {
		case form:
			complete = cobra.FixedCompletions(append(slices.Clone(v.words), jsonPathForm), cobra.ShellCompDirectiveNoFileComp)
		case oneOf:
			complete = cobra.FixedCompletions(v.allowed, cobra.ShellCompDirectiveNoFileComp)
		default:
			kind := kinds[f.Name]
			if kind == "" {
				return
			}
			complete = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return p.names(cmd, kind, "")
			}
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, complete) // fails only for a flag that has one
	})
	for _, sub := range cmd.Commands() {
		p.completeFlags(sub)
	}
}

// namesOf lists the objects of a kind, by the names that the verbs take.
func namesOf(ctx context.Context, c *client.Client, kind, ns string) ([]string, error) {
	var names []string
	switch kind {
	case "pods", "mounts":
		pods, err := c.Pods(ctx)
		for _, v := range pods {
			if v.Pod.Namespace == ns {
				names = append(names, v.Pod.Name)
			}
		}
		return names, err
	case "volumes":
		volumes, err := c.Volumes(ctx)
		for _, v := range volumes {
			names = append(names, string(v.Volume.ID))
		}
		return names, err
	case "drivers":
		drivers, err := c.Drivers(ctx)
		for _, v := range drivers {
			names = append(names, string(v.Name))
		}
		return names, err
	case "named":
		volumes, err := c.NamedVolumes(ctx)
		for _, v := range volumes {
			names = append(names, v.Name)
		}
		return names, err
	case "kept":
		volumes, err := c.KeptNamed(ctx)
		for _, v := range volumes {
			names = append(names, v.Name)
		}
		return names, err
	case "namespaces":
		pods, err := c.Pods(ctx)
		for _, v := range pods {
			names = append(names, v.Pod.Namespace)
		}
		slices.Sort(names)
		return slices.Compact(names), err
	case "pv":
		pvs, err := c.PersistentVolumes(ctx)
		for _, v := range pvs {
			names = append(names, v.Name)
		}
		return names, err
	case "pvc", "snapshots", "groupsnapshots", "schedules":
		return dataNames(ctx, c, kind, ns)
	default:
		return nil, nil
	}
}

// dataNames lists the claims, snapshots, group snapshots or schedules of a namespace.
func dataNames(ctx context.Context, c *client.Client, kind, ns string) (names []string, err error) {
	switch kind {
	case "pvc":
		claims, err := c.Claims(ctx)
		return namesIn(ns, claims, func(v server.ClaimStatus) (string, string) { return v.Namespace, v.Name }), err
	case "schedules":
		all, err := c.Schedules(ctx)
		return namesIn(ns, all, func(v server.ScheduleStatus) (string, string) { return v.Namespace, v.Name }), err
	case "groupsnapshots":
		all, err := c.GroupSnapshots(ctx)
		return namesIn(ns, all, func(v server.GroupSnapshotStatus) (string, string) { return v.Namespace, v.Name }), err
	default:
		all, err := c.Snapshots(ctx)
		return namesIn(ns, all, func(v server.SnapshotStatus) (string, string) { return v.Namespace, v.Name }), err
	}
}

// namesIn returns the names of the items in a namespace.
func namesIn[T any](ns string, all []T, of func(T) (namespace, name string)) (names []string) {
	for _, v := range all {
		if in, name := of(v); in == ns {
			names = append(names, name)
		}
	}
	return names
}
