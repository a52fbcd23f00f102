package main

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
	"github.com/spf13/cobra"
)

// completeTimeout bounds how long a shell waits for names after a tab.
const completeTimeout = 2 * time.Second

// completes makes the shell complete cmd's first argument to one of kinds, and
// the further ones to the names that the daemon knows of that kind.
func (p *program) completes(cmd *cobra.Command, kinds ...string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return kinds, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		c := p.client()
		defer c.Close()
		ns, _ := cmd.Flags().GetString("namespace") // without that flag, ""
		names, err := namesOf(ctx, c, kindOf(args[0]), ns)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf lists what there is of a kind, by the names that the verbs take.
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
	case "pv":
		pvs, err := c.PersistentVolumes(ctx)
		for _, v := range pvs {
			names = append(names, v.Name)
		}
		return names, err
	case "pvc":
		claims, err := c.Claims(ctx)
		for _, v := range claims {
			if v.Namespace == ns {
				names = append(names, v.Name)
			}
		}
		return names, err
	default:
		return nil, nil
	}
}
