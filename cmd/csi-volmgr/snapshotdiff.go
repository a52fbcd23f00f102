package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

func (p *program) snapshotDiffCommand() *cobra.Command {
	var ns, output string
	cmd := &cobra.Command{
		Use:   "diff [OLDER] NAME",
		Short: "Print the ranges of a snapshot that changed since an older one, or that hold data",
		Long: `Print the ranges of a volume's bytes that changed between two snapshots of it, or the ranges
that hold data in one snapshot. Each line is an offset and a size in bytes, in ascending order; the sum
goes to standard error. -o json writes one object per line. A backup program copies only these ranges:
see docs/snapshots.md.

The driver needs the plugin capability SNAPSHOT_METADATA_SERVICE. If the exit code is not 0, some
ranges are missing.`,
		Example: `  csi-volmgr snapshot diff monday tuesday
  csi-volmgr snapshot diff monday -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "") { // an unset variable would otherwise ask for something else
				return usagef("expected the names of snapshots: one is empty")
			}
			q := server.BlocksQuery{Namespace: ns}
			switch len(args) {
			case 1:
				q.Name = args[0]
			case 2:
				q.Base, q.Name = args[0], args[1]
			default:
				return usagef("expected the name of a snapshot, or of an older one and a later one")
			}
			return p.snapshotDiff(cmd.Context(), q, output)
		},
	}
	namespaceFlag(cmd, &ns)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.names(cmd, "snapshots", "")
	}
	outputFlag(cmd, &output)
	return cmd
}

// snapshotDiff writes the ranges as they arrive.
func (p *program) snapshotDiff(ctx context.Context, q server.BlocksQuery, output string) error {
	c := p.client()
	defer c.Close()
	out := bufio.NewWriter(p.stdout)
	count, bytes := 0, int64(0)
	write := func(r server.BlockRange) error {
		line := fmt.Appendln(nil, r.Offset, r.Size)
		if structured(output) {
			var err error
			if line, err = renderOne(r, output); err != nil {
				return err
			}
		}
		_, err := out.Write(line)
		return err
	}
	capacity, err := c.Blocks(ctx, q, func(ranges []server.BlockRange) error {
		for _, r := range ranges {
			count, bytes = count+1, bytes+r.Size
			if err := write(r); err != nil {
				return err
			}
		}
		return out.Flush()
	})
	if err != nil {
		return err
	}
	total := fmt.Sprintf("%d ranges, %d bytes", count, bytes)
	if capacity > 0 {
		total += fmt.Sprintf(" of a volume of %d", capacity)
	}
	return writeAll(p.stderr, total+"\n")
}
