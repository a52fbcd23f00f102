package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/spf13/cobra"
)

// redraw is how often the ages and countdowns on a terminal are updated.
const redraw = time.Second

func (p *program) waitCommand() *cobra.Command {
	w := client.Wait{}
	var goal, output string
	cmd := &cobra.Command{
		Use:   "wait pod NAME",
		Short: "Wait until a pod's volumes are mounted, or gone",
		Long: `Wait until every volume of a pod is mounted as wanted, or until none is mounted
any more. Meanwhile the verb shows the step of each: live on a terminal, otherwise
a line for each change. It also waits for a pod that is not known yet.

Verified is more than mounted: the daemon asks the kernel whether each mount is still
as it was made, and the storage whether it answers. Wait for it before a container
starts: a volume that was mounted a moment ago may be gone.

Exit code 124 means that the timeout expired; standard error then says which step
each volume is at, and why. JSON and YAML are written once, at the end of the wait.`,
		Example: `  csi-volmgr wait pod web --for=mounted --timeout=2m
  csi-volmgr wait pod web -o jsonpath='{range .pod.volumes[*]}{.hostPath}{"\n"}{end}'
  csi-volmgr wait pod web --for=verified && start-the-container
  csi-volmgr delete pod web && csi-volmgr wait pod web --for=unmounted`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := inNamespace(cmd, &w.Namespace, args, "pods")
			if err != nil {
				return err
			}
			if w.For = client.Goal(goal); w.For != client.Mounted && w.For != client.Verified && w.For != client.Unmounted {
				return usagef("unknown goal --for=%s: expected mounted, verified or unmounted", goal)
			}
			switch {
			case w.Timeout < 0:
				return usagef("--timeout=%s: expected 0 or more", w.Timeout)
			case w.Timeout > server.MaxWait:
				return usagef("--timeout=%s: expected at most 24h", w.Timeout)
			}
			w.Name = t.name
			return p.wait(cmd.Context(), w, output)
		},
	}
	namespaceFlag(cmd, &w.Namespace)
	p.completes(cmd, "pod")
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&goal, "for", string(client.Mounted), "mounted, verified or unmounted")
	cmd.Flags().DurationVar(&w.Timeout, "timeout", 2*time.Minute, "how long to wait at most, up to 24h")
	return cmd
}

func (p *program) wait(ctx context.Context, w client.Wait, output string) error {
	c := p.client()
	defer c.Close()
	start := p.now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shown := make(chan server.Progress)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.showProgress(ctx, shown, start, output)
	}()
	last, err := c.Wait(ctx, w, func(pr server.Progress) {
		select {
		case shown <- pr:
		case <-ctx.Done():
		}
	})
	close(shown)
	<-ended
	switch {
	case err != nil:
		return err
	case structured(output):
		err = p.document(last, output)
	case last.Done:
		err = writeAll(p.stdout, doneLine(last, w, p.now().Sub(start)))
	}
	if err != nil || last.Done {
		return err
	}
	if err := writeAll(p.stderr, waitFailure(last, w, p.now())); err != nil {
		return err
	}
	if pods, err := c.Pods(ctx); err == nil && !last.Known {
		if others := namespacesOf(pods, podKey, w.Name); len(others) > 0 {
			p.also(server.NotKnown("pod", w.Namespace, w.Name, others))
		}
	}
	return codeError(exitTimeout)
}

// showProgress shows the progress that shown delivers, until it is closed or ctx ends.
func (p *program) showProgress(ctx context.Context, shown <-chan server.Progress, start time.Time, output string) {
	if structured(output) {
		for range shown {
			continue
		}
		return
	}
	if _, ok := p.width(); ok {
		p.live(ctx, shown)
		return
	}
	seen := map[string]string{}
	for pr := range shown {
		for _, l := range progressLines(pr) {
			if seen[l.key] != l.text {
				seen[l.key] = l.text
				_, _ = fmt.Fprintf(p.stdout, "%s  %s\n", server.Age(start, p.now()), l.text)
			}
		}
	}
}

// live redraws one line per volume in place, and erases them at the end.
func (p *program) live(ctx context.Context, shown <-chan server.Progress) {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	var last server.Progress
	known, drawn := false, 0
	for {
		select {
		case pr, ok := <-shown:
			if !ok {
				erase(p.stdout, drawn)
				return
			}
			last, known = pr, true
		case <-tick.C:
		case <-ctx.Done():
			erase(p.stdout, drawn)
			return
		}
		if !known {
			continue
		}
		width, _ := p.width()
		erase(p.stdout, drawn)
		lines := liveLines(last, p.now())
		for _, l := range lines {
			_, _ = fmt.Fprintln(p.stdout, short(l, max(width-1, 20)))
		}
		drawn = len(lines)
	}
}

// erase moves the cursor n lines up and clears from there.
func erase(w io.Writer, n int) {
	if n > 0 {
		_, _ = fmt.Fprintf(w, "\x1b[%dA\x1b[J", n)
	}
}

// progressLine is the step of one volume, without anything that changes with time alone.
type progressLine struct{ key, text string }

func progressLines(pr server.Progress) []progressLine {
	if !pr.Known && pr.Done {
		return nil // there is nothing to unmount
	}
	if !pr.Known {
		text := "no source names this pod"
		if len(pr.NotReady) > 0 {
			text += "; " + strings.Join(pr.NotReady, "; ")
		}
		return []progressLine{{text: text}}
	}
	var out []progressLine
	for _, v := range pr.Pod.Volumes {
		out = append(out, progressLine{key: strings.Join(v.Names, ","), text: volumeProgress(v)})
	}
	return out
}

// volumeProgress returns the progress of a volume, such as "data: Stage: driver nfs.csi.k8s.io is not
// registered".
func volumeProgress(v server.PodVolumeStatus) string {
	name := strings.Join(v.Names, ",")
	switch {
	case v.Mounted && v.Step == "":
		return fmt.Sprintf("%s: mounted at %s", name, v.HostPath)
	case v.Phase == state.Absent && v.Step == "" && v.BlockedBy == "":
		return name + ": not mounted"
	}
	text := name
	if v.Step != "" {
		text += ": " + v.Step
	}
	if v.Retry.Attempts > 0 {
		text += fmt.Sprintf(": try %d failed: %s", v.Retry.Attempts, plain(v.Retry.Failure()))
	} else if v.BlockedBy != "" {
		text += ": " + plain(v.BlockedBy)
	}
	return text
}

// liveLines returns progressLines with ages and countdowns.
func liveLines(pr server.Progress, now time.Time) []string {
	lines := progressLines(pr)
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.text
		if !pr.Known {
			continue
		}
		v := pr.Pod.Volumes[i]
		switch {
		case v.Step != "" && v.Retry.NotBefore.After(now):
			out[i] = fmt.Sprintf("%s (again in %s)", l.text, server.Age(now, v.Retry.NotBefore))
		case v.Step != "" && !v.Since.IsZero():
			out[i] = fmt.Sprintf("%s (%s)", l.text, server.Age(v.Since, now))
		}
	}
	return out
}

func doneLine(pr server.Progress, w client.Wait, took time.Duration) string {
	what := string(w.For)
	took = took.Round(100 * time.Millisecond)
	if !pr.Known {
		return fmt.Sprintf("pod %s/%s: nothing of it is here (%s)\n", w.Namespace, w.Name, took)
	}
	return fmt.Sprintf("pod %s/%s: %s %s (%s)\n", w.Namespace, w.Name, count(len(pr.Pod.Volumes), "volume"), what, took)
}

// waitFailure explains, for each volume that has not reached the goal, why.
func waitFailure(pr server.Progress, w client.Wait, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "csi-volmgr: pod %s/%s is not %s after %s", w.Namespace, w.Name, w.For, w.Timeout)
	if !pr.Known {
		b.WriteString(": no source names this pod\n")
		for _, n := range pr.NotReady {
			b.WriteString("  not read yet: " + plain(n) + "\n")
		}
		b.WriteString("  see what there is: csi-volmgr get pods -A\n")
		return b.String()
	}
	b.WriteString(":\n")
	if pr.Unverified != "" {
		b.WriteString("  " + plain(pr.Unverified) + "\n")
	}
	for _, v := range pr.Pod.Volumes {
		if w.For != client.Unmounted && v.Mounted && !v.Unresolved() || w.For == client.Unmounted && v.Phase == state.Absent {
			continue
		}
		b.WriteString("  " + plain(v.Line(now)) + "\n")
	}
	for _, n := range pr.NotReady {
		b.WriteString("  not read yet: " + plain(n) + "\n")
	}
	fmt.Fprintf(&b, "  more: csi-volmgr explain pod %s -n %s\n", w.Name, w.Namespace)
	return b.String()
}
