package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// forgetOptions has the flags of forget.
type forgetOptions struct {
	reason, namespace string
	mounted, gone     bool
}

const forgetLong = `Drop the record of a volume without calling its driver, when the driver or the
storage will not come back. Its directories on this node stay, and the daemon no
longer reports it as in use: be sure that nothing on this node writes to it.

The daemon refuses while a pod wants the volume, a call for it is in flight, or the
kernel shows that it is mounted. The reason goes to the audit log. While a mount of
a forgotten volume stays, its claim's volume cannot be deleted: unmount it first.

forget pvc NAME drops the record of the volume that was made for a claim, and forget
snapshot NAME that of a snapshot, when their deletion cannot end. Delete them first.
What may be left at the storage is printed and goes to the audit log. If the driver is
not there, the daemon refuses, since the deletion goes on when the driver is back:
--driver-gone says that it will not be.`

func (p *program) forgetCommand() *cobra.Command {
	var o forgetOptions
	cmd := &cobra.Command{
		Use:   "forget (VOLUME|pvc NAME|snapshot NAME) --reason=TEXT",
		Short: "Drop the record of what can never be removed properly",
		Long:  forgetLong,
		Example: `  csi-volmgr forget pvc-17 --reason="array 3 was scrapped"
  csi-volmgr forget pvc data -n shop --driver-gone --reason="array 3 was scrapped"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 || args[0] == "" {
				return usagef("expected a VOLUME, pvc NAME or snapshot NAME, found %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(o.reason) == "" {
				return usagef("say why with --reason")
			}
			kind, name, _ := strings.Cut(args[0], "/")
			ofObject := isForgettable(kind) && (name != "" || len(args) > 1)
			switch {
			case ofObject && o.mounted:
				return usagef("--even-mounted is for volumes")
			case !ofObject && o.gone:
				return usagef("--driver-gone is for pvc NAME and snapshot NAME")
			case !ofObject && len(args) > 1:
				return usagef("expected one VOLUME, or pvc or snapshot NAME, found %q", args)
			case !ofObject && cmd.Flags().Changed("namespace"):
				return usagef("-n is for pvc NAME and snapshot NAME: name a volume by NAMESPACE/CLAIM")
			}
			return p.forget(cmd.Context(), args, o, ofObject)
		},
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why it may be dropped, in `words`, for the audit log")
	cmd.Flags().BoolVar(&o.mounted, "even-mounted", false,
		"even if it is mounted; the mounts stay, and csi-volmgr no longer manages them")
	cmd.Flags().BoolVar(&o.gone, "driver-gone", false, "the driver of the claim or snapshot will not come back")
	namespaceFlag(cmd, &o.namespace)
	cmd.ValidArgsFunction = func(
		cmd *cobra.Command, args []string, _ string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && isForgettable(args[0]) {
			return p.names(cmd, kindOf(args[0]), "")
		}
		return p.names(cmd, "volumes", "")
	}
	return cmd
}

// isForgettable reports whether a word is a kind of objects whose records can be dropped.
func isForgettable(word string) bool { return kindOf(word) == "pvc" || kindOf(word) == "snapshots" }

func (p *program) forget(ctx context.Context, args []string, o forgetOptions, ofObject bool) error {
	c := p.client()
	defer c.Close()
	var done server.Applied
	var err error
	if ofObject {
		ts, wrong := targets(args, "pvc", "snapshots")
		if wrong != nil {
			return wrong
		}
		f := server.Forget{Kind: "snapshot", Namespace: o.namespace, Name: ts[0].name, Reason: o.reason, Gone: o.gone}
		if ts[0].kind == "pvc" {
			f.Kind = "claim"
		}
		done, err = c.ForgetObject(ctx, f)
	} else {
		done, err = c.Forget(ctx, args[0], o.reason, o.mounted)
	}
	if err != nil {
		return err
	}
	return writeAll(p.stdout, appliedLine(done))
}
