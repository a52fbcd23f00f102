package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// retryOptions say how what waits is tried again. With a namespace it is snapshots, or group snapshots, in
// that one.
type retryOptions struct {
	step              state.UnmountStep
	reason, namespace string
}

const retryLong = `End the pause that follows a failure, for the volumes named: what failed is
tried again at once. What waits for something else goes on waiting. retry snapshot NAME and
retry groupsnapshot NAME do the same for snapshots; the driver is asked again about one that
is made and not ready.

With --step an unmount that does not succeed is made otherwise, once. Either step
may lose what was written and has not reached the storage:

  force  fails whatever waits for the storage, where the file system can do that
         (NFS, CephFS, FUSE); what has files open stays in the way
  lazy   takes the mount out of the directory tree; who has a file open goes on
         writing to it, and the volume counts as unmounted

It is refused where no unmount of the volume has failed or is under way: nothing
is unmounted that a container may use. The reason goes to the audit log.`

func (p *program) retryCommand() *cobra.Command {
	var step, reason, ns string
	cmd := &cobra.Command{
		Use:   "retry (VOLUME...|snapshot NAME...|groupsnapshot NAME...) [--step=(force|lazy) --reason=TEXT]",
		Short: "Repeat failed calls now",
		Long:  retryLong,
		Example: `  csi-volmgr retry data
  csi-volmgr retry snapshot monday -n shop
  csi-volmgr retry data --step=force --reason="filer 3 is gone for good"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("expected a VOLUME, or snapshot or groupsnapshot NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if (step == "") != (strings.TrimSpace(reason) == "") {
				return usagef("expected --step and --reason together: say why what was not written back may be lost")
			}
			o := retryOptions{step: state.UnmountStep(step), reason: reason}
			if kind, name, _ := strings.Cut(args[0], "/"); isCut(kind) && (name != "" || len(args) > 1) {
				if step != "" {
					return usagef("--step is for volumes")
				}
				o.namespace = ns
			} else if cmd.Flags().Changed("namespace") {
				return usagef("-n is for snapshots: name a volume by NAMESPACE/CLAIM")
			}
			return p.retry(cmd.Context(), args, o)
		},
	}
	cmd.Flags().Var(oneOf{&step, []string{string(state.UnmountForce), string(state.UnmountLazy)}}, "step",
		"how an unmount that does not succeed is made, once")
	cmd.Flags().StringVar(&reason, "reason", "", "why that may be done, in `words`, for the audit log")
	namespaceFlag(cmd, &ns)
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, _ string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && isCut(args[0]) {
			return p.names(cmd, kindOf(args[0]), "")
		}
		return p.names(cmd, "volumes", "")
	}
	return cmd
}

// isCut reports whether a word is the kind of snapshots or of group snapshots.
func isCut(word string) bool { return kindOf(word) == "snapshots" || kindOf(word) == "groupsnapshots" }

// retry ends the pauses of volumes, or of snapshots ("snapshot NAME..." or "snapshot/NAME...").
func (p *program) retry(ctx context.Context, args []string, o retryOptions) error {
	c := p.client()
	defer c.Close()
	var ts []target
	if o.namespace != "" {
		var err error
		if ts, err = targets(args, "snapshots", "groupsnapshots"); err != nil {
			return err
		}
	} else {
		for _, name := range args {
			ts = append(ts, target{"volumes", name})
		}
	}
	for _, t := range ts {
		var done server.Applied
		var err error
		switch t.kind {
		case "snapshots":
			done, err = c.RetrySnapshot(ctx, o.namespace, t.name)
		case "groupsnapshots":
			done, err = c.RetryGroupSnapshot(ctx, o.namespace, t.name)
		default:
			done, err = c.Retry(ctx, t.name, o.step, o.reason)
		}
		if err != nil {
			return err
		}
		if err := writeAll(p.stdout, appliedLine(done)); err != nil {
			return err
		}
	}
	return nil
}
