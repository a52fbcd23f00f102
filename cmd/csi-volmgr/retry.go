package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// retryOptions has the flags of retry. With a namespace, snapshots or group snapshots in it are retried.
type retryOptions struct {
	step              state.UnmountStep
	reason, namespace string
}

const retryLong = `End the pause that follows a failure, for the volumes named: the failed call is
repeated at once. A volume that waits for something else keeps waiting. retry snapshot NAME and
retry groupsnapshot NAME do the same for snapshots; the driver is asked again about one that
is made but not ready.

With --step an unmount that does not succeed is made in another way, once. Either step
may lose data that was written and has not reached the storage:

  force  fails all calls that wait for the storage, if the file system supports that
         (NFS, CephFS, FUSE); a process with open files still blocks the unmount
  lazy   removes the mount from the directory tree; a process with an open file keeps
         writing to it, and the volume counts as unmounted

It is refused if no unmount of the volume has failed or is under way: nothing is
unmounted that a container may use. The reason goes to the audit log.`

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
			if len(args) == 0 || slices.Contains(args, "") {
				return usagef("expected a VOLUME, or snapshot or groupsnapshot NAME, found %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if (step == "") != (strings.TrimSpace(reason) == "") {
				return usagef("expected --step and --reason together: say why data that was not written back may be lost")
			}
			o := retryOptions{step: state.UnmountStep(step), reason: reason}
			if kind, name, _ := strings.Cut(args[0], "/"); isSnapshotKind(kind) && (name != "" || len(args) > 1) {
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
		"how to make an unmount that does not succeed, once")
	cmd.Flags().StringVar(&reason, "reason", "", "why the step may be used, in `words`, for the audit log")
	namespaceFlag(cmd, &ns)
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, _ string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && isSnapshotKind(args[0]) {
			return p.names(cmd, kindOf(args[0]), "")
		}
		return p.names(cmd, "volumes", "")
	}
	return cmd
}

// isSnapshotKind reports whether a word is a kind of snapshots or group snapshots.
func isSnapshotKind(word string) bool {
	return kindOf(word) == "snapshots" || kindOf(word) == "groupsnapshots"
}

// retry ends the back-off of volumes, or of snapshots ("snapshot NAME..." or "snapshot/NAME...").
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
