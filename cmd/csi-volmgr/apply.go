package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/spf13/cobra"
)

func (p *program) applyCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIRECTORY|-",
		Short: "Create or update the objects in a manifest",
		Long: `Create or update the objects in manifests, which are YAML or JSON. The daemon takes all
objects of a file, or none. The kinds are:

` + wrapped(manifest.KindNames()),
		Example: `  csi-volmgr apply -f web.yaml
  generate | csi-volmgr apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("a manifest is named with -f: csi-volmgr apply -f %s", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("name a manifest with -f")
			}
			c := p.client()
			defer c.Close()
			return p.manifests(files, func(m server.Manifest) ([]server.Applied, error) {
				return c.Apply(cmd.Context(), m)
			})
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"`FILE`, directory, or - for standard input; may be repeated")
	noKustomize(cmd)
	return cmd
}

// wrapped returns words, separated by commas, in lines of a help text.
func wrapped(words []string) string {
	const width = 80
	var b strings.Builder
	column := 0
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if i > 0 && column+1+len(word) > width {
			b.WriteByte('\n')
			column = 0
		} else if i > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

const deleteLong = `Delete objects of this node.

delete pod NAME tells the daemon that the pod's containers have stopped; it then unmounts
its volumes. The data of its claims stays.

delete pvc NAME deletes a claim and THE DATA of its volume. If the volume's reclaimPolicy
is Retain (its class said so when it was made), the volume and its data stay unless
--data is given. The daemon refuses while a pod uses the claim.

delete snapshot NAME deletes a snapshot. If its deletionPolicy is Retain, it stays unless
--data is given. The daemon refuses while a claim waits to be made of it. delete groupsnapshot
NAME deletes all snapshots of a group, by the same rules; none of them can be deleted alone.
delete schedule NAME ends a schedule; its snapshots stay.

Nothing else deletes data: delete -f withdraws all objects of a manifest except its claims
and snapshots. The audit log has each deletion of a claim or a snapshot, with the reason.`

func (p *program) deleteCommand() *cobra.Command {
	var files []string
	var ns, reason string
	var data, all bool
	cmd := &cobra.Command{
		Use: "delete (pod NAME... | (pvc|snapshot|groupsnapshot) NAME... [--reason=TEXT] [--data] | " +
			"schedule NAME... | (pod|pvc|snapshot|groupsnapshot) --all | -f FILE)",
		Short: "Delete pods, claims with their data, or snapshots",
		Long:  deleteLong,
		Example: `  csi-volmgr delete pod web
  csi-volmgr delete pvc data -n shop --reason="the shop has closed"
  csi-volmgr delete -f web.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(files) == 0) == (len(args) == 0) {
				return usagef("expected either pods, claims or snapshots by name, or manifests with -f")
			}
			if err := flagsOfNames(cmd, len(files) > 0); err != nil {
				return err
			}
			c := p.client()
			defer c.Close()
			if all {
				named, err := p.allNamed(cmd.Context(), c, ns, args)
				if err != nil {
					return err
				}
				if args = named; len(args) == 1 {
					return writeAll(p.stderr, fmt.Sprintf("No %s found in namespace %s.\n", args[0], ns))
				}
			}
			if len(files) > 0 {
				return p.manifests(files, func(m server.Manifest) ([]server.Applied, error) {
					return c.Withdraw(cmd.Context(), m)
				})
			}
			return p.deleteNamed(cmd.Context(), c, server.ClaimDeletion{Namespace: ns, Reason: reason, Data: data}, args)
		},
	}
	namespaceFlag(cmd, &ns)
	p.completes(cmd, "pod", "pvc", "snapshot", "groupsnapshot", "schedule")
	cmd.Flags().StringVar(&reason, "reason", "", "why claims or snapshots may go, in `words`, for the audit log")
	cmd.Flags().BoolVar(&all, "all", false, "all pods, claims, snapshots or group snapshots of the namespace")
	noKustomize(cmd)
	cmd.Flags().BoolVar(&data, "data", false,
		"delete the volumes of claims and their data, or snapshots, even if the policy is Retain")
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"`FILE`, directory, or - for standard input; may be repeated")
	return cmd
}

// flagsOfNames refuses flags that have no effect on the objects of manifests.
func flagsOfNames(cmd *cobra.Command, manifests bool) error {
	switch flags := cmd.Flags(); {
	case !manifests:
		return nil
	case flags.Changed("namespace"):
		return usagef("-f takes the namespaces from the manifest: leave out --namespace")
	case flags.Changed("data") || flags.Changed("reason"):
		return usagef("-f deletes no claim and no snapshot: leave out --data and --reason, or delete them by name")
	}
	return nil
}

// deleteNamed deletes the objects that args name; d has the options. A failure does not keep later ones
// from being deleted, but makes the verb fail.
func (p *program) deleteNamed(ctx context.Context, c *client.Client, d server.ClaimDeletion, args []string) error {
	ts, err := targets(args, "pods", "pvc", "snapshots", "groupsnapshots", "schedules")
	if err != nil {
		return err
	}
	for _, t := range ts {
		if t.name == "" {
			return usagef("name what to delete")
		}
	}
	kept := slices.ContainsFunc(ts, func(t target) bool { return t.kind != "pods" && t.kind != "schedules" })
	if (d.Data || d.Reason != "") && !kept {
		return usagef("--data and --reason are for claims and snapshots, not for %s", ts[0].kind)
	}
	var failed error
	for _, t := range ts {
		var err error
		var done server.Applied
		word := "pod"
		switch d.Name = t.name; t.kind {
		case "pvc":
			word = "pvc"
			stop := p.printWaiting(ctx, c, target{"pvc", d.Namespace + "/" + d.Name})
			done, err = c.DeleteClaim(ctx, d)
			stop()
		case "snapshots":
			word = "snapshot"
			done, err = c.DeleteSnapshot(ctx, snapshotDeletion(d, false))
		case "groupsnapshots":
			word = "groupsnapshot"
			done, err = c.DeleteSnapshot(ctx, snapshotDeletion(d, true))
		case "schedules":
			word = "schedule"
			err = c.RemoveSchedule(ctx, d.Namespace, t.name)
		default:
			err = c.DeletePod(ctx, d.Namespace, t.name)
		}
		if ctx.Err() != nil || errors.Is(err, client.ErrNoDaemon) {
			return err
		}
		if err != nil {
			p.also(failed)
			failed = err
			continue
		}
		if done.Note != "" {
			done.Note = ": " + done.Note
		}
		if err := writeAll(p.stdout, fmt.Sprintf("%s/%s deleted%s\n", word, t.name, done.Note)); err != nil {
			return err
		}
	}
	return failed
}

func snapshotDeletion(d server.ClaimDeletion, group bool) server.SnapshotDeletion {
	return server.SnapshotDeletion{Namespace: d.Namespace, Name: d.Name, Group: group, Reason: d.Reason, Data: d.Data}
}

// also prints a failure that is not the verb's last; nil is none.
func (p *program) also(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(p.stderr, "csi-volmgr: "+p.explainError(err))
	}
}

// manifests sends each file to do and prints the results of its objects. A refused file does not keep
// later ones from being sent, but makes the verb fail.
func (p *program) manifests(paths []string, do func(server.Manifest) ([]server.Applied, error)) error {
	files, err := expand(paths)
	if err != nil {
		return err
	}
	var failed error
	var warnings []string
	objects := 0
	for _, file := range files {
		m, err := p.read(file)
		if err != nil {
			return err
		}
		done, err := do(m)
		if errors.Is(err, client.ErrNoDaemon) || errors.Is(err, context.Canceled) {
			return err // of the other files, too
		}
		objects += len(done)
		if err != nil {
			p.also(failed)
			failed = err
			continue
		}
		for _, a := range done {
			if err := writeAll(p.stdout, appliedLine(a)); err != nil {
				return err
			}
			switch {
			case a.Kind == "StorageClass":
				warnings = nil // a claim in an earlier file may have waited for it
			case a.Warning != "":
				warnings = append(warnings, a.Warning)
			}
		}
	}
	for _, w := range warnings {
		if err := writeAll(p.stderr, "warning: "+plain(w)+"\n"); err != nil {
			return err
		}
	}
	if failed == nil && objects == 0 {
		return fmt.Errorf("no object in %s", strings.Join(files, ", "))
	}
	return failed
}

func appliedLine(a server.Applied) string {
	name := a.Name
	if a.Namespace != "" && a.Namespace != defaultNS {
		name = a.Namespace + "/" + name
	}
	line := fmt.Sprintf("%s/%s %s", strings.ToLower(a.Kind), name, a.Result)
	if a.Note != "" {
		line += ": " + plain(a.Note)
	}
	return line + "\n"
}

// expand replaces directories by the manifests directly in them, sorted.
func expand(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		st, err := os.Stat(path)
		if path == "-" || err == nil && !st.IsDir() {
			out = append(out, path)
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				out = append(out, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no .yaml, .yml or .json file in %v", paths)
	}
	return out, nil
}

func (p *program) read(file string) (server.Manifest, error) {
	in := p.stdin
	if file == "-" {
		file = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return server.Manifest{}, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, server.MaxManifest+1))
	if err != nil {
		return server.Manifest{}, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > server.MaxManifest {
		return server.Manifest{}, fmt.Errorf("%s is over %d bytes: split it", file, server.MaxManifest)
	}
	return server.Manifest{Name: file, Data: data}, nil
}
