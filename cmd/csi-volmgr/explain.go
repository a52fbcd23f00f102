package main

import (
	"context"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

func (p *program) explainCommand() *cobra.Command {
	var ns, output string
	cmd := &cobra.Command{
		Use:   "explain (pod|pvc|snapshot|groupsnapshot|volume|driver) NAME",
		Short: "Explain why an object is not ready",
		Long: `Explain why something is not ready, as one chain: what is wanted, which step it
is at, what blocks it, what does not, what comes next, and what you can do. Name
a volume by its claim, its PersistentVolume, its handle or its id. The exit code
is 1 only if there is no such object.`,
		Example: `  csi-volmgr explain pod web
  csi-volmgr explain pvc data -n shop
  csi-volmgr explain snapshot monday
  csi-volmgr explain volume shop/data
  csi-volmgr explain driver nfs.csi.k8s.io
  csi-volmgr explain pod web -o jsonpath='{.verdict}{"\n"}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := inNamespace(cmd, &ns, args, "pods", "pvc", "snapshots", "groupsnapshots", "volumes", "drivers")
			if err != nil {
				return err
			}
			if t.kind != "volumes" && t.kind != "drivers" {
				t.name = ns + "/" + t.name
			}
			return p.explain(cmd.Context(), t, output)
		},
	}
	namespaceFlag(cmd, &ns)
	p.completes(cmd, "pod", "pvc", "snapshot", "groupsnapshot", "volume", "driver")
	outputFlag(cmd, &output)
	return cmd
}

func (p *program) explain(ctx context.Context, t target, output string) error {
	c := p.client()
	defer c.Close()
	e, err := c.Explain(ctx, strings.TrimSuffix(t.kind, "s"), t.name)
	if err != nil {
		return err
	}
	if structured(output) {
		err = p.document(e, output)
	} else {
		text := e.String()
		if head, rest, _ := strings.Cut(text, "\n"); p.colours() {
			text = strings.TrimSuffix(head, e.Verdict) + paint(e.Verdict) + "\n" + rest
		}
		err = writeAll(p.stdout, text)
	}
	if err == nil && e.Verdict == server.Unknown {
		err = codeError(exitFailed)
	}
	return err
}
