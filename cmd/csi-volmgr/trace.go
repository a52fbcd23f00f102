package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

// barWidth is the width of a timeline (columns).
const barWidth = 40

func (p *program) traceCommand() *cobra.Command {
	var ns, file string
	var o runOptions
	var output string
	cmd := &cobra.Command{
		Use:   "trace ((pod|volume) NAME | --export=FILE)",
		Short: "Show the last calls for a volume or for a pod's volumes",
		Long: `trace shows the calls of a volume that the daemon keeps in memory: the first and the
last fifteen since it was started, in the order in which they began. It keeps those of a
removed volume or pod until 4096 others had calls. -o timeline draws when each ran.

--export writes a bundle for a request for help: versions, configuration,
the state of pods, volumes, drivers and claims with explanations, the last calls of
every volume, the mounts and the journal's files, the doctor's report, metrics.
It has no secrets. Without a daemon that answers, it has less.`,
		Example: `  csi-volmgr trace pod web
  csi-volmgr trace pod web -o timeline
  csi-volmgr trace volume data -o json
  csi-volmgr trace --export=bundle.tar.gz`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				if err := noArgs(cmd, args); err != nil {
					return err
				}
				return p.export(cmd.Context(), file, o)
			}
			t, err := inNamespace(cmd, &ns, args, "pods", "volumes")
			if err != nil {
				return err
			}
			return p.trace(cmd.Context(), ns, t, output)
		},
	}
	namespaceFlag(cmd, &ns)
	outputFlag(cmd, &output, "timeline")
	exportFlags(cmd, &file, &o)
	p.completes(cmd, "pod", "volume")
	return cmd
}

func (p *program) trace(ctx context.Context, ns string, t target, output string) error {
	c := p.client()
	defer c.Close()
	kind, name := "volume", t.name
	if t.kind == "pods" {
		kind, name = "pod", ns+"/"+t.name
	}
	calls, err := c.Trace(ctx, kind, name)
	if err != nil {
		return err
	}
	switch {
	case structured(output):
		return p.document(server.List[server.EndedCall]{Items: calls}, output)
	case len(calls) == 0:
		return writeAll(p.stderr, "No calls are kept: none was made since the daemon started, or its volumes went "+
			"long ago.\n")
	case output == "timeline":
		return writeAll(p.stdout, timeline(calls))
	}
	return writeTable(p.stdout, traceColumns(), calls, p.look(output))
}

func traceColumns() []column[server.EndedCall] {
	return []column[server.EndedCall]{
		{head: "BEGAN", value: func(c server.EndedCall, _ view) string { return c.Began.UTC().Format("15:04:05.000") }},
		{head: "TOOK", value: func(c server.EndedCall, _ view) string { return took(c.TookNanos) }},
		{head: "CALL", value: func(c server.EndedCall, _ view) string { return c.Op.String() }},
		{head: "VOLUME", value: func(c server.EndedCall, v view) string { return v.id(c.Volume) }},
		{head: "DRIVER", value: func(c server.EndedCall, _ view) string { return string(c.Driver) }},
		// In full, because it is what a reader of one volume's calls looks for.
		{head: "RESULT", value: func(c server.EndedCall, _ view) string { return plain(result(c)) }},
		{head: "POD", wide: true, value: func(c server.EndedCall, _ view) string { return orNone(string(c.Pod)) }},
	}
}

// result returns the result of a call, and the outcome of a failed one.
func result(c server.EndedCall) string {
	if c.Error == "" {
		return "OK"
	}
	return c.Error + " (outcome " + c.Outcome + ")"
}

func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// timeline draws each call as a bar on one scale, from the start of the first to the end of the last; x
// marks a failed call.
func timeline(calls []server.EndedCall) string {
	first, last := calls[0].Began, calls[0].Began
	for _, c := range calls {
		if end := c.Began.Add(c.TookNanos); end.After(last) {
			last = end
		}
	}
	whole := max(last.Sub(first), time.Nanosecond)
	column := func(t time.Time) int { return int(int64(t.Sub(first)) * (barWidth - 1) / int64(whole)) }
	var b strings.Builder
	fmt.Fprintf(&b, "from %s, %s in all\n", first.UTC().Format("2006-01-02 15:04:05.000"), took(whole))
	for _, c := range calls {
		from, to := column(c.Began), column(c.Began.Add(c.TookNanos))
		bar := strings.Repeat(" ", from) + strings.Repeat("=", to-from+1)
		if c.Error != "" {
			bar = bar[:len(bar)-1] + "x"
		}
		fmt.Fprintf(&b, "%-9s |%-*s| %8s  %s\n", c.Op, barWidth, bar, took(c.TookNanos), plain(server.ShortID(c.Volume)))
	}
	return b.String()
}
