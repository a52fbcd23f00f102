package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

// whoTimeout bounds the search for holders, which reads /proc once.
const whoTimeout = 30 * time.Second

// operatorCommands returns the verbs for operators of the node.
func (p *program) operatorCommands() []*cobra.Command {
	return []*cobra.Command{
		p.whoCommand(), p.doctorCommand(), p.topCommand(), p.retryCommand(), p.drainCommand(), p.undrainCommand(),
		p.gcCommand(), p.forgetCommand(), p.adoptCommand(), p.releaseCommand(), p.journalCommand(), p.uninstallCommand(),
	}
}

func (p *program) whoCommand() *cobra.Command {
	var output, ns string
	cmd := &cobra.Command{
		Use:   "who (VOLUME|PATH|pod NAME)",
		Short: "List the processes and devices that hold a volume or a mount",
		Long: `List who holds a volume, or what is mounted at a path: the processes with open
files, a working or root directory, a program or mapped memory on it, and the
containers that they are in; other mount namespaces that have a copy of the
mount; loop devices and device-mapper devices on top of it.

Processes count that use a mount which was unmounted lazily (umount -l), too.
Storage that hangs does not hang it.
A path needs no daemon. For a pod it lists the holders of each of its volumes.`,
		Example: `  csi-volmgr who data
  csi-volmgr who pod web
  csi-volmgr who /var/lib/kubelet/pods/1b4e28ba/volumes/kubernetes.io~csi/pv-1/mount
  csi-volmgr who data -o jsonpath='{.processes[*].pid}{"\n"}'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && slices.Contains([]string{"pods", "volumes", "pvc"}, kindOf(args[0])) && args[1] != "" {
				return nil
			}
			return oneArg("VOLUME or PATH, or pod NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), whoTimeout)
			defer cancel()
			what := args[len(args)-1]
			if len(args) == 2 && kindOf(args[0]) == "pods" {
				return p.whoPod(ctx, ns, what, output)
			}
			if len(args) == 2 && kindOf(args[0]) == "pvc" && !strings.Contains(what, "/") {
				what = ns + "/" + what
			}
			r, err := p.who(ctx, what)
			if word, name, ok := strings.Cut(what, "/"); errors.Is(err, server.ErrNotFound) && ok {
				switch kindOf(word) {
				case "pods":
					return p.whoPod(ctx, ns, name, output)
				case "pvc":
					r, err = p.who(ctx, ns+"/"+name)
				}
			}
			if errors.Is(err, server.ErrNotFound) && len(args) == 1 && !strings.Contains(what, "/") {
				return fmt.Errorf("%w; if it is a pod: csi-volmgr who pod %s", err, what)
			}
			if err != nil {
				return err
			}
			if structured(output) {
				return p.document(r, output)
			}
			return writeAll(p.stdout, whoText(r))
		},
	}
	namespaceFlag(cmd, &ns)
	outputFlag(cmd, &output)
	p.completesVolumes(cmd, cobra.ShellCompDirectiveDefault)
	return cmd
}

func (p *program) who(ctx context.Context, what string) (holders.Report, error) {
	c := p.client()
	defer c.Close()
	if !filepath.IsAbs(what) {
		if before, after, ok := strings.Cut(what, "/"); ok && kindOf(before) == "volumes" {
			what = after
		}
		return c.Who(ctx, what, "")
	}
	r, err := c.Who(ctx, "", what)
	if errors.Is(err, client.ErrNoDaemon) {
		return new(holders.Finder).Find(ctx, holders.Query{Paths: []string{what}})
	}
	return r, err
}

// whoText returns a report as text.
func whoText(r holders.Report) string {
	var b strings.Builder
	if len(r.Mounts) == 0 {
		b.WriteString("mounted at   nowhere\n")
	}
	for _, path := range r.Mounts {
		fmt.Fprintf(&b, "mounted at   %s\n", plain(path))
	}
	for _, pr := range r.Processes {
		var uses []string
		for _, u := range pr.Uses {
			uses = append(uses, u.Kind+" "+u.Path+detached(u))
		}
		if pr.More > 0 {
			uses = append(uses, fmt.Sprintf("and %d more", pr.More))
		}
		fmt.Fprintf(&b, "process      %d %s%s: %s\n", pr.PID, plain(pr.Name), inContainer(pr.Container),
			plain(strings.Join(uses, ", ")))
	}
	for _, n := range r.Namespaces {
		fmt.Fprintf(&b, "namespace    %s of process %d %s%s has a copy at %s\n", n.ID, n.PID, plain(n.Name),
			inContainer(n.Container), plain(strings.Join(n.Mounts, ", ")))
	}
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "device       %s (%s) is made of %s\n", d.Name, d.Kind, plain(d.Of))
	}
	for _, u := range r.Unread {
		fmt.Fprintf(&b, "not fully inspected: process %d %s: %s\n", u.PID, plain(u.Name), plain(u.Why))
	}
	if !r.Held() {
		b.WriteString("no holder found\n")
	}
	for _, pr := range r.Named {
		fmt.Fprintf(&b, "named by     %d %s%s in its command line: some drivers wait until it ends\n", pr.PID, plain(pr.Name),
			inContainer(pr.Container))
	}
	return b.String()
}

// detached describes how sure it is that a file of a mount that was unmounted lazily is on the volume.
func detached(u holders.Use) string {
	switch {
	case u.Unsure:
		return " (of a mount that was unmounted lazily, of this volume or another on its file system)"
	case u.Detached:
		return " (of a mount that was unmounted lazily)"
	}
	return ""
}

// inContainer returns the container, pod or unit of a process in parentheses; "" if it has none.
func inContainer(c holders.Container) string {
	var words []string
	if c.ID != "" {
		words = append(words, strings.TrimSpace(c.Runtime+" container "+c.ID[:min(12, len(c.ID))]))
	}
	if c.Pod != "" {
		words = append(words, "pod "+c.Pod)
	}
	if c.Unit != "" {
		words = append(words, c.Unit)
	}
	if words == nil {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usagef("expected one %s", what)
		}
		return nil
	}
}

// dryOrYes adds --dry-run and --yes to verbs that report before they act; the user must give one.
func dryOrYes(cmd *cobra.Command, dry, yes *bool) {
	cmd.Flags().BoolVar(dry, "dry-run", false, "only show what would be done, and why not")
	cmd.Flags().BoolVar(yes, "yes", false, "do it")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *dry == *yes {
			return usagef("expected either --dry-run or --yes")
		}
		return nil
	}
}

func (p *program) gcCommand() *cobra.Command {
	var dry, yes, storage, lost bool
	var output string
	cmd := &cobra.Command{
		Use:   "gc (--dry-run|--yes [--lost-uses]|--storage)",
		Short: "Find leftovers of pods that no source lists, and remove empty directories",
		Long: `List leftovers below the root directory, which no pod wants and no record has:
directories of removed pods, staging directories, mounts. For each it says whether it
is safe to remove, and why.

With --yes it removes what is safe: directories that hold nothing but empty
directories, by rmdir. It unmounts nothing and removes no file with content.
Nothing is safe while a source of pods has not answered. It also ends uses of
volumes that a Docker or podman left behind which has ended, if no process has
the volume. Of an engine that runs it ends no use, except with --lost-uses: if
csi-volmgr was killed while the engine asked for an unmount, the engine has
forgotten the use.

With --storage it asks drivers for the volumes and snapshots in their storage, and
lists those that no record and no PersistentVolume of this node names. They may be
another node's or cluster's: a driver does not say whose a volume is. It deletes
nothing. Exit code 1 means that a driver did not list everything.`,
		Example: `  csi-volmgr gc --dry-run
  csi-volmgr gc --dry-run -o json
  csi-volmgr gc --yes
  csi-volmgr gc --storage`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if storage {
				return p.gcStorage(cmd.Context(), output)
			}
			return p.gc(cmd.Context(), gcWork{yes, lost}, output)
		},
	}
	dryOrYes(cmd, &dry, &yes)
	cmd.Flags().BoolVar(&storage, "storage", false, "list volumes and snapshots in drivers' storage that no record knows")
	cmd.Flags().BoolVar(&lost, "lost-uses", false, "end also uses of engines that run, of volumes that no process has")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if lost && !yes {
			return usagef("--lost-uses is for --yes")
		}
		if storage && (dry || yes) || !storage && dry == yes {
			return usagef("expected one of --dry-run, --yes and --storage")
		}
		return nil
	}
	outputFlag(cmd, &output)
	return cmd
}

// gcWork is whether gc removes what is safe, and whether it ends uses of engines that run.
type gcWork struct{ yes, lost bool }

// gc lists the leftovers, and does the work.
func (p *program) gc(ctx context.Context, w gcWork, output string) error {
	c := p.client()
	defer c.Close()
	var items []leftover.Item
	var err error
	if w.yes {
		items, err = c.GC(ctx, w.lost)
	} else {
		items, err = c.Leftovers(ctx)
	}
	if err != nil {
		return err
	}
	if structured(output) {
		err = p.document(server.List[leftover.Item]{Items: items}, output)
	} else {
		err = writeAll(p.stdout, leftoverText(items, w.yes))
	}
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.Error != "" {
			return codeError(exitFailed)
		}
	}
	return nil
}

func leftoverText(items []leftover.Item, acted bool) string {
	var b strings.Builder
	done, safe := 0, 0
	for _, i := range items {
		word := "keep"
		switch {
		case i.Removed:
			word, done = "removed", done+1
		case i.Error != "":
			word, i.Why = "failed", i.Error
		case i.Safe:
			word, safe = "would remove", safe+1
		}
		fmt.Fprintf(&b, "%-12s  %s %s: %s\n", word, i.Kind, plain(i.Path), plain(i.Why))
	}
	if acted {
		fmt.Fprintf(&b, "%d leftovers, %d removed\n", len(items), done)
	} else {
		fmt.Fprintf(&b, "%d leftovers, %d safe to remove\n", len(items), safe)
	}
	return b.String()
}
