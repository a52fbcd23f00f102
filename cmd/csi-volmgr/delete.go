package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/spf13/cobra"
)

const deleteLong = `Delete objects of this node.

delete pod NAME tells the daemon that the pod's containers have stopped; it then unmounts
its volumes. The data of its claims stays.

delete pvc NAME deletes a claim and THE DATA of its volume. If the volume's reclaimPolicy
is Retain (column RECLAIM of get pvc), the volume and its data stay unless --data is
given. The daemon refuses while a pod uses the claim.

delete snapshot NAME deletes a snapshot. If its deletionPolicy is Retain, it stays unless
--data is given. The daemon refuses while a claim waits to be made of it. delete groupsnapshot
NAME deletes all snapshots of a group, by the same rules; none of them can be deleted alone.
delete schedule NAME ends a schedule; its snapshots stay.

With --all, with labels (-l) or with a pattern in place of a name ('db-*') the verb prints
which claims or snapshots would go, and what becomes of their data. Only with --yes it
deletes them. It asks nothing for objects that are named one by one, and nothing for pods.

No claim and no snapshot goes by -f: delete -f withdraws all objects of a manifest except
its claims and snapshots. What a pod keeps in an emptyDir or an ephemeral volume goes with
the pod. The audit log has each deletion of a claim or a snapshot, with the reason.`

// deletion has the flags of delete.
type deletion struct {
	server.ClaimDeletion
	files    []string
	all, yes bool
	skip     bool
	selector string
}

func (p *program) deleteCommand() *cobra.Command {
	var d deletion
	cmd := &cobra.Command{
		Use: "delete (pod NAME... | (pvc|snapshot|groupsnapshot) NAME... [--reason=TEXT] [--data] | " +
			"schedule NAME... | (pod|pvc|snapshot|groupsnapshot) (--all|-l LABELS) [--yes] | -f FILE)",
		Short: "Delete pods, claims with their data, or snapshots",
		Long:  deleteLong,
		Example: `  csi-volmgr delete pod web
  csi-volmgr delete pvc data -n shop --reason="the shop has closed"
  csi-volmgr delete pvc 'test-*' --yes
  csi-volmgr delete -f web.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(d.files) == 0) == (len(args) == 0) {
				return usagef("expected either pods, claims or snapshots by name, or manifests with -f")
			}
			if err := flagsOfNames(cmd, len(d.files) > 0); err != nil {
				return err
			}
			c := p.client()
			defer c.Close()
			if len(d.files) > 0 {
				return p.withdraw(cmd.Context(), c, d.files, d.skip)
			}
			if d.isSet(args) {
				named, err := p.deleteSet(cmd.Context(), c, d, args)
				if err != nil || len(named) == 0 {
					return err
				}
				args = named
			}
			return p.deleteNamed(cmd.Context(), c, d.ClaimDeletion, args)
		},
	}
	namespaceFlag(cmd, &d.Namespace)
	p.completes(cmd, "pod", "pvc", "snapshot", "groupsnapshot", "schedule")
	f := cmd.Flags()
	f.StringVar(&d.Reason, "reason", "", "why claims or snapshots may go, in `words`, for the audit log")
	f.BoolVar(&d.all, "all", false, "all pods, claims, snapshots or group snapshots of the namespace")
	f.StringVarP(&d.selector, "selector", "l", "", "those with these `labels`, such as app=web")
	f.BoolVar(&d.yes, "yes", false, "delete what --all, -l or a pattern names of claims or snapshots")
	noKustomize(cmd)
	skipFlag(cmd, &d.skip)
	f.BoolVar(&d.Data, "data", false,
		"delete the volumes of claims and their data, or snapshots, even if the policy is Retain")
	f.StringArrayVarP(&d.files, "filename", "f", nil, "`FILE`, directory, or - for standard input; may be repeated; "+
		"claims and snapshots in it stay, with their data")
	return cmd
}

// withdraw withdraws the objects of manifests, and says what became of the data.
func (p *program) withdraw(ctx context.Context, c *client.Client, files []string, skip bool) error {
	pods, kept := 0, 0
	err := p.manifests(files, func(m server.Manifest) ([]server.Applied, error) {
		m.SkipUnknown = skip
		done, err := c.Withdraw(ctx, m)
		for _, a := range done {
			switch {
			case a.Result == "kept":
				kept++
			case a.Result == "deleted" && a.Kind == "Pod":
				pods++
			}
		}
		return done, err
	})
	said := ""
	if kept > 0 {
		said = fmt.Sprintf("%d claims and snapshots of the manifest stay, with their data.\n", kept)
	}
	if pods > 0 {
		said += "emptyDirs and ephemeral volumes go with their pods; all other data stays.\n"
	}
	if said != "" {
		err = errors.Join(err, writeAll(p.stderr, said))
	}
	return err
}

// flagsOfNames refuses flags that have no effect on the objects of manifests.
func flagsOfNames(cmd *cobra.Command, manifests bool) error {
	switch flags := cmd.Flags(); {
	case !manifests && flags.Changed("skip-unknown"):
		return usagef("--skip-unknown is for manifests: name one with -f")
	case !manifests:
		return nil
	case flags.Changed("namespace"):
		return usagef("-f takes the namespaces from the manifest: leave out --namespace")
	case flags.Changed("data") || flags.Changed("reason"):
		return usagef("-f deletes no claim and no snapshot: leave out --data and --reason, or delete them by name")
	case flags.Changed("all") || flags.Changed("selector"):
		return usagef("-f takes the objects from the manifest: leave out --all and --selector")
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
