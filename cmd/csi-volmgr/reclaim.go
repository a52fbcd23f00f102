package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

func (p *program) volumeSetCommand() *cobra.Command {
	var ns, policy string
	cmd := &cobra.Command{
		Use:   "set pvc NAME --reclaim=(Retain|Delete)",
		Short: "Say whether the volume of a claim goes with the claim",
		Long: `Say whether the volume that csi-volmgr made for a claim is deleted, with its data, when the
claim is deleted (Delete), or stays (Retain). Its class said so when it was made. Column
RECLAIM of get pvc and get pv has what is in force. A claim whose volume a source lists
needs no policy: csi-volmgr deletes only what it made.`,
		Example: `  csi-volmgr volume set pvc/data --reclaim=Retain
  csi-volmgr volume set pvc data -n shop --reclaim=Delete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := inNamespace(cmd, &ns, args, "pvc")
			if err != nil {
				return err
			}
			if policy == "" {
				return usagef("expected --reclaim=Retain or --reclaim=Delete")
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
