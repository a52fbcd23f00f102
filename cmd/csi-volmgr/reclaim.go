package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

func (p *program) volumeSetCommand() *cobra.Command {
	var ns, policy string
	cmd := &cobra.Command{
		Use:   "set (NAME OPTION=VALUE...|pvc NAME --reclaim=(Retain|Delete))",
		Short: "Change a named volume's options, or say whether a claim's volume goes with the claim",
		Long: `Change options of a volume that Docker, podman, mount -t csi or Nomad names (volume list): size
makes it larger, uid, gid and mode are of the directory that its users get, and reclaim says
whether removing the volume deletes its data. A volume that is in use has them at once; a
larger file system may take a while, which explain pvc says.

For a claim, say whether the volume that csi-volmgr made for a claim is deleted, with its data, when the
claim is deleted (Delete), or stays (Retain). Its class said so when it was made. Column
RECLAIM of get pvc and get pv has what is in force. A claim whose volume a source lists
needs no policy: csi-volmgr deletes only what it made.`,
		Example: `  csi-volmgr volume set db size=20Gi
  csi-volmgr volume set default/data uid=999 mode=0750
  csi-volmgr volume set pvc/data --reclaim=Retain
  csi-volmgr volume set pvc data -n shop --reclaim=Delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "=") }) {
				if policy != "" || cmd.Flags().Changed("namespace") {
					return usagef("OPTION=VALUE is for a volume of volume list, and -n and --reclaim are for a claim: " +
						"write reclaim=VALUE, without -n")
				}
				return p.changeNamed(cmd.Context(), args)
			}
			t, err := inNamespace(cmd, &ns, args, "pvc")
			if err != nil {
				return err
			}
			if policy == "" {
				return usagef("expected --reclaim=Retain or --reclaim=Delete, or OPTION=VALUE after a name of volume list")
			}
			c := p.client()
			defer c.Close()
			done, err := c.SetReclaim(cmd.Context(), server.Reclaim{Namespace: ns, Claim: t.name, Policy: policy})
			if err != nil {
				return err
			}
			return writeAll(p.stdout, "pvc/"+strings.TrimPrefix(appliedLine(done), "persistentvolumeclaim/"))
		},
	}
	namespaceFlag(cmd, &ns)
	cmd.Flags().Var(oneOf{&policy, []string{"Retain", "Delete"}}, "reclaim", "what becomes of the volume with its claim")
	p.completes(cmd, "pvc")
	return cmd
}

// changeNamed changes options of a named volume.
func (p *program) changeNamed(ctx context.Context, args []string) error {
	options := map[string]string{}
	for _, word := range args[1:] {
		key, value, ok := strings.Cut(word, "=")
		if _, has := options[key]; !ok || has {
			return usagef("expected OPTION=VALUE, each once, after the name of the volume, found %q", word)
		}
		options[key] = value
	}
	if strings.Contains(args[0], "=") {
		return usagef("expected the name of a volume before %s", args[0])
	}
	c := p.client()
	defer c.Close()
	v, err := c.ChangeNamed(ctx, args[0], server.NamedChange{Options: options})
	if err != nil {
		return err
	}
	return writeAll(p.stdout, "volume "+plain(v.Name)+" has "+plain(strings.Join(args[1:], " "))+"\n")
}
