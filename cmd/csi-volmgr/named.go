package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// namedColumns returns the columns of volumes that programs outside Kubernetes name.
func namedColumns() []column[server.NamedVolume] {
	return []column[server.NamedVolume]{
		{head: "NAME", value: func(n server.NamedVolume, _ view) string { return plain(n.Name) }},
		{head: "FRONT END", value: func(n server.NamedVolume, _ view) string { return orNone(n.FrontEnd) }},
		{head: "CLAIM", value: func(n server.NamedVolume, _ view) string { return orNone(n.Claim) }},
		{head: "STATUS", state: true, value: func(n server.NamedVolume, _ view) string { return namedState(n) }},
		{head: "CREATED", value: func(n server.NamedVolume, v view) string { return v.age(n.Created) }},
		{head: "USED BY", value: func(n server.NamedVolume, v view) string {
			return v.reason(strings.Join(n.Holders, "; "))
		}},
		{head: "PATH", wide: true, value: func(n server.NamedVolume, _ view) string { return orNone(plain(n.Mountpoint)) }},
		{head: "PROBLEM", value: func(n server.NamedVolume, v view) string {
			return v.reason(strings.Join(append(n.Waits, n.Problem), " "))
		}},
	}
}

// namedState returns a named volume's state in a word.
func namedState(n server.NamedVolume) string {
	switch {
	case !n.Removed.IsZero():
		return "Kept"
	case n.Problem != "":
		return "Unreadable"
	case n.Removing:
		return "Removing"
	case len(n.Waits) > 0:
		return "Waiting"
	case n.Mountpoint != "":
		return "Mounted"
	}
	return "Unused"
}

func (p *program) namedListCommand() *cobra.Command {
	var output string
	var kept bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the volumes that Docker, podman, mount -t csi and Nomad name",
		Long: `List the volumes that Docker, podman, mount -t csi and Nomad name, and what used each
when the daemon last asked the kernel. explain pod asks it again. With --all it also lists the
data of volumes that Docker or podman removed, which is kept until you restore or delete it.`,
		Example: `  csi-volmgr volume list
  csi-volmgr volume list --all
  csi-volmgr volume list -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := p.client()
			defer c.Close()
			all, err := c.NamedVolumes(cmd.Context())
			if err == nil && kept {
				var removed []server.NamedVolume
				removed, err = c.KeptNamed(cmd.Context())
				all = append(all, removed...)
			}
			if err != nil {
				return err
			}
			if structured(output) {
				return p.document(server.List[server.NamedVolume]{Items: all}, output)
			}
			return writeTable(p.stdout, namedColumns(), all, p.look(output))
		},
	}
	outputFlag(cmd, &output)
	cmd.Flags().BoolVarP(&kept, "all", "a", false, "also list the kept data of removed volumes")
	return cmd
}

func (p *program) namedRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore NAME [NEWNAME]",
		Short: "Bring back a volume that Docker or podman removed, with its data",
		Long: `Bring back a volume that Docker or podman removed, with its data. NAME is that of the kept data,
as volume list --all and get pv show it. The volume gets its former name, or NEWNAME. The
daemon refuses a name that a volume has.

A volume that an earlier version removed may have kept its data under the volume's own name.
Then NAME is that name, if no new volume has it.`,
		Example: `  csi-volmgr volume restore db.removed-20261128-135526
  csi-volmgr volume restore db.removed-20261128-135526 db-of-yesterday`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("expected NAME of the kept data, and NEWNAME for another name")
			}
			c := p.client()
			defer c.Close()
			v, err := c.RestoreNamed(cmd.Context(), args[0], strings.Join(args[1:], ""))
			if err != nil {
				return err
			}
			return writeAll(p.stdout, "volume "+plain(v.Name)+" restored from "+plain(args[0])+"\n")
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion,
		cobra.ShellCompDirective,
	) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.names(cmd, "kept", "")
	}
	return cmd
}

func (p *program) namedRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a volume that Docker, podman, mount -t csi or Nomad names",
		Long: `Remove a volume that Docker, podman, mount -t csi or Nomad names. Its data is deleted if it was
made with reclaim=Delete; otherwise it stays, and the answer says where, and how to bring it
back. The daemon refuses while a process uses the volume.`,
		Example: `  csi-volmgr volume remove default/data`,
		Args:    oneArg("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := p.client()
			defer c.Close()
			note, err := c.RemoveNamed(cmd.Context(), server.NamedRemoval{Name: args[0]})
			if err != nil {
				return err
			}
			if note != "" {
				note = ": " + note
			}
			return writeAll(p.stdout, "volume "+plain(args[0])+" removed"+plain(note)+"\n")
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.names(cmd, "named", "")
	}
	return cmd
}

func (p *program) volumeReleaseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "release PV",
		Short: "Give a PersistentVolume, with its data, to the next claim that asks for it",
		Long: `Give a PersistentVolume, with its data, to the next claim that asks for it. The first claim that
has a volume keeps it: after the claim was deleted, the volume is only given to a claim of the
same namespace and name, since its data is that claim's. The daemon refuses while the claim is
listed or the volume is mounted.`,
		Example: `  csi-volmgr volume release disk1
  csi-volmgr volume release disk1 --reason="bank/data has moved"`,
		Args: oneArg("PV"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := p.client()
			defer c.Close()
			done, err := c.ReleaseVolume(cmd.Context(), server.Release{Volume: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return writeAll(p.stdout, "persistentvolume/"+plain(done.Name)+" released "+plain(done.Note)+"\n")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.names(cmd, "pv", "")
	}
	return cmd
}
