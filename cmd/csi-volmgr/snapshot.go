package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// snapshotWait is how long a verb waits by default for a snapshot or a claim.
const snapshotWait = 5 * time.Minute

func snapshotColumns() []column[server.SnapshotStatus] {
	return []column[server.SnapshotStatus]{
		{head: "NAMESPACE", value: func(s server.SnapshotStatus, _ view) string { return s.Namespace }},
		{head: "NAME", value: func(s server.SnapshotStatus, _ view) string { return s.Name }},
		{head: "STATUS", state: true, value: func(s server.SnapshotStatus, _ view) string { return s.Phase }},
		{head: "READY", value: func(s server.SnapshotStatus, _ view) string { return yesNo(s.Ready) }},
		{head: "CLAIM", value: func(s server.SnapshotStatus, _ view) string { return orNone(s.Claim) }},
		{head: "SIZE", value: func(s server.SnapshotStatus, _ view) string { return size(s.RestoreBytes) }},
		{head: "CLASS", value: func(s server.SnapshotStatus, _ view) string { return orNone(s.Class) }},
		{head: "AGE", value: func(s server.SnapshotStatus, v view) string {
			if s.Created.IsZero() {
				return none
			}
			return v.age(s.Created)
		}},
		{head: "WAITING FOR", value: func(s server.SnapshotStatus, v view) string {
			if s.Retry.Attempts > 0 && s.Retry.Call != "" {
				return v.reason(s.Retry.Failure())
			}
			return v.reason(s.Reason)
		}},
		{head: "DRIVER", wide: true, value: func(s server.SnapshotStatus, _ view) string { return orNone(string(s.Driver)) }},
		{head: "HANDLE", wide: true, value: func(s server.SnapshotStatus, _ view) string { return orNone(plain(s.Handle)) }},
		{head: "POLICY", wide: true, value: func(s server.SnapshotStatus, _ view) string { return orNone(s.DeletionPolicy) }},
		{head: "CONSISTENCY", wide: true, value: func(s server.SnapshotStatus, _ view) string {
			return orNone(s.Consistency)
		}},
		{head: "GROUP", wide: true, value: func(s server.SnapshotStatus, _ view) string { return orNone(s.Group) }},
	}
}

func (p *program) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Make snapshots of claims, and claims of snapshots; list what changed between two",
		Example: `  csi-volmgr snapshot create pvc/data
  csi-volmgr get snapshots
  csi-volmgr snapshot restore data-20261125-164500 pvc/data-of-monday`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.snapshotCreateCommand(), p.snapshotRestoreCommand(), p.snapshotScheduleCommand(),
		p.snapshotDiffCommand())
	return cmd
}

// snapshotOptions are the flags of snapshot create.
type snapshotOptions struct {
	ns, name, class, selector string
	timeout, freeze           time.Duration
	hooks
}

func (p *program) snapshotCreateCommand() *cobra.Command {
	var o snapshotOptions
	cmd := &cobra.Command{
		Use:   "create (pvc/NAME | -l LABELS)",
		Short: "Make a snapshot of a claim's volume, or of several at one moment",
		Long: `Make a snapshot of a claim's volume, and wait until volumes can be made of it. It is a
VolumeSnapshot, as one made with apply -f. It may lack what a pod writes meanwhile, as after
a power cut: see docs/snapshots.md for what that means to a database.

With --freeze the kernel freezes the file system while the driver makes the snapshot, for
that time at most: programs that write wait. get snapshots -o wide shows a snapshot whose
freeze ended early. --exec-before and --exec-after are commands that run as you, outside of
the freeze: the first before it, the second once the driver has made the snapshot, also
after a failure. Programs run again even if the driver still copies then.

With -l it is a VolumeGroupSnapshot of all claims of the namespace with these labels: all
at one moment, or none. A driver that cannot make groups needs --freeze for it. The snapshot
of claim CLAIM in group NAME is called NAME-CLAIM.

Exit code 124 means that the snapshot was not ready in time; the driver continues.`,
		Example: `  csi-volmgr snapshot create pvc/data
  csi-volmgr snapshot create pvc/data --freeze=10s --exec-before='podman exec db flush'
  csi-volmgr snapshot create pvc/data -n shop --name=before-the-upgrade --class=nightly
  csi-volmgr snapshot create -l app=shop --name=monday --freeze=10s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := p.client()
			defer c.Close()
			k, err := p.snapshotToMake(c, o, args)
			if err != nil {
				return err
			}
			return p.create(cmd.Context(), c, k, o)
		},
	}
	namespaceFlag(cmd, &o.ns)
	p.completes(cmd, "pvc")
	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "`name` of the snapshot (default the claim's, or group, and the time)")
	flags.StringVar(&o.class, "class", "",
		"`name` of its VolumeSnapshotClass or, with -l, VolumeGroupSnapshotClass (default the driver's default class)")
	flags.StringVarP(&o.selector, "selector", "l", "", "`labels` of the claims to snapshot together, such as app=shop")
	flags.DurationVar(&o.timeout, "timeout", snapshotWait, "how long to wait for it to be ready; 0 means no wait")
	flags.DurationVar(&o.freeze, "freeze", 0, "freeze the file system for this long at most; up to 1m")
	flags.StringVar(&o.before, "exec-before", "", "`command` for the shell before it is made")
	flags.StringVar(&o.after, "exec-after", "", "`command` for the shell after it, also after a failure")
	return cmd
}

// snapshotToMake is a snapshot or a group snapshot to be made.
type snapshotToMake struct {
	object metav1.Object
	// what is "snapshot" or "groupsnapshot".
	what string
	// exists reports whether one with that name exists. An error means that it cannot be made.
	exists func(context.Context) (bool, error)
	// watch reports its progress now and at each change.
	watch func(ctx context.Context, each func(snapshotProgress) error) error
}

// snapshotProgress is the progress of a snapshot: cut once the driver has answered, though it may still copy;
// ready once volumes can be made of it; refused if it cannot be made. reason is why it waits.
type snapshotProgress struct {
	cut, ready, refused bool
	reason              string
}

// snapshotToMake returns the snapshot that the options ask for.
func (p *program) snapshotToMake(c *client.Client, o snapshotOptions, args []string) (snapshotToMake, error) {
	meta := metav1.ObjectMeta{Name: o.name, Namespace: o.ns}
	if o.freeze != 0 {
		meta.Annotations = map[string]string{resolve.FreezeAnnotation: o.freeze.String()}
	}
	if _, bad := resolve.FreezeOf(&meta); bad != nil {
		return snapshotToMake{}, usagef("--freeze=%s: expected %s", o.freeze, bad.Want)
	}
	now := "-" + p.now().UTC().Format("20060102-150405")
	if o.selector != "" {
		if len(args) > 0 {
			return snapshotToMake{}, usagef("-l selects the claims: leave out %s", args[0])
		}
		meta.Name = cmp.Or(o.name, "group"+now)
		return newGroupSnapshot(c, meta, o)
	}
	t, err := oneTarget(args, "pvc")
	if err != nil {
		return snapshotToMake{}, err
	}
	meta.Name = cmp.Or(o.name, t.name+now)
	return p.newSnapshot(c, meta, t.name, o.class), nil
}

// newSnapshot returns a snapshot of one claim.
func (p *program) newSnapshot(c *client.Client, meta metav1.ObjectMeta, claim, class string) snapshotToMake {
	s := &snapshotv1.VolumeSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: resolve.SnapshotGroup + "/v1", Kind: resolve.KindSnapshot},
		ObjectMeta: meta,
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
	}
	if class != "" {
		s.Spec.VolumeSnapshotClassName = &class
	}
	return snapshotToMake{
		object: s, what: "snapshot",
		exists: func(ctx context.Context) (bool, error) {
			if _, err := p.claimOf(ctx, c, meta.Namespace, claim); err != nil {
				return false, orCluster(ctx, c, err, claimThere)
			}
			_, err := snapshotOf(ctx, c, meta.Namespace, meta.Name)
			if errors.Is(err, server.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		},
		watch: func(ctx context.Context, each func(snapshotProgress) error) error {
			return c.WatchSnapshots(ctx, func(e server.Event[server.SnapshotStatus]) error {
				s := e.Item
				if s.Namespace != meta.Namespace || s.Name != meta.Name {
					return nil
				}
				return each(snapshotProgress{cut: s.Handle != "", ready: s.Ready, refused: s.Refused, reason: s.Reason})
			})
		},
	}
}

// hooks are the user's shell commands; "" is none.
type hooks struct{ before, after string }

func (p *program) hook(ctx context.Context, command string) error {
	if command == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, p.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %q: %w", command, err)
	}
	return nil
}

// create applies the object of a snapshot between the hooks, and waits for it.
func (p *program) create(ctx context.Context, c *client.Client, k snapshotToMake, o snapshotOptions) error {
	there, err := k.exists(ctx)
	switch {
	case err != nil:
		return err
	case there:
		return fmt.Errorf("%w: %s %s/%s is there already: choose another --name", server.ErrConflict, k.what,
			k.object.GetNamespace(), k.object.GetName())
	}
	if o.before != "" { // run the command only for a snapshot that will be made
		m, err := manifestOf(k.object)
		if err == nil {
			err = c.Check(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	if err = p.hook(ctx, o.before); err == nil {
		err = p.applyObject(ctx, c, k.object)
	}
	limit := snapshotWait
	if o.timeout > 0 {
		limit = o.timeout
	}
	if err == nil && o.after != "" { // until then the program must not continue, whatever --timeout says
		err = p.awaitSnapshot(ctx, k, snapshotGoal{"cut", func(c snapshotProgress) bool { return c.cut }, limit})
	}
	if failed := p.hook(context.WithoutCancel(ctx), o.after); failed != nil {
		return errors.Join(err, failed)
	}
	if err != nil {
		return err
	}
	return p.awaitSnapshot(ctx, k, snapshotGoal{"ready", func(c snapshotProgress) bool { return c.ready }, o.timeout})
}

// applyObject applies an object, and prints the result.
func (p *program) applyObject(ctx context.Context, c *client.Client, obj any) error {
	m, err := manifestOf(obj)
	if err != nil {
		return err
	}
	done, err := c.Apply(ctx, m)
	if err != nil {
		return err
	}
	for _, a := range done {
		if err := writeAll(p.stdout, appliedLine(a)); err != nil {
			return err
		}
	}
	return nil
}

// manifestOf returns the manifest of an object that a verb makes.
func manifestOf(obj any) (server.Manifest, error) {
	data, err := json.Marshal(obj)
	return server.Manifest{Name: "the object that this verb makes", Data: data}, err
}

// claimOf returns a claim's status.
func (p *program) claimOf(ctx context.Context, c *client.Client, ns, name string) (server.ClaimStatus, error) {
	claims, err := c.Claims(ctx)
	for _, one := range claims {
		if one.Namespace == ns && one.Name == name {
			return one, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("%w: claim %s/%s is not known here", server.ErrNotFound, ns, name)
	}
	return server.ClaimStatus{}, err
}

// snapshotOf returns a snapshot's status.
func snapshotOf(ctx context.Context, c *client.Client, ns, name string) (server.SnapshotStatus, error) {
	all, err := c.Snapshots(ctx)
	for _, one := range all {
		if one.Namespace == ns && one.Name == name {
			return one, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("%w: snapshot %s/%s is not known here", server.ErrNotFound, ns, name)
	}
	return server.SnapshotStatus{}, err
}

// What to do about claims and snapshots that only the cluster knows.
const (
	claimThere = "the daemon knows nothing of a claim that no pod on this node uses, and the cluster makes the " +
		"snapshots and clones of its claims: kubectl apply -f FILE, with a VolumeSnapshot, or a claim with a dataSource"
	snapshotThere = "the cluster's external-snapshotter makes the snapshots of its claims (kubectl get volumesnapshots) " +
		"and its external-provisioner restores them: kubectl apply -f FILE, with a claim whose dataSource names the snapshot"
)

// orCluster adds to a not-found error how the cluster does it, if the daemon runs for a cluster.
func orCluster(ctx context.Context, c *client.Client, err error, how string) error {
	if !errors.Is(err, server.ErrNotFound) {
		return err
	}
	if v, asked := c.Version(ctx); asked != nil || !v.Cluster {
		return err
	}
	return fmt.Errorf("%w: %s", err, how)
}

// errReached ends a watch that has reached its goal.
var errReached = errors.New("seen")

// snapshotGoal is the progress to wait for, and for how long.
type snapshotGoal struct {
	word    string
	reached func(snapshotProgress) bool
	timeout time.Duration
}

// awaitSnapshot waits until a snapshot reaches the goal or is refused.
func (p *program) awaitSnapshot(ctx context.Context, k snapshotToMake, goal snapshotGoal) error {
	var last snapshotProgress
	name := k.object.GetName()
	return p.await(ctx, await{
		what: k.what + "/" + name, word: goal.word, timeout: goal.timeout, reason: func() string { return last.reason },
		watch: func(ctx context.Context) error {
			return k.watch(ctx, func(now snapshotProgress) error {
				switch last = now; {
				case goal.reached(now):
					return errReached
				case now.refused:
					return fmt.Errorf("%w: %s %s/%s: %s", server.ErrConflict, k.what, k.object.GetNamespace(), name, now.reason)
				}
				return nil
			})
		},
	})
}

// await is a wait: watch ends with errReached when the goal is reached.
type await struct {
	what, word string
	timeout    time.Duration
	watch      func(context.Context) error
	reason     func() string // why the goal is not reached yet
}

// await waits for at most w.timeout.
func (p *program) await(ctx context.Context, w await) error {
	if w.timeout <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	err := w.watch(ctx)
	switch {
	case errors.Is(err, errReached):
		return writeAll(p.stdout, w.what+" "+w.word+"\n")
	case err != nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		text := fmt.Sprintf("%s is not %s after %s", w.what, w.word, w.timeout)
		if why := w.reason(); why != "" {
			text += ": " + plain(why)
		}
		if err := writeAll(p.stderr, text+"\n"); err != nil {
			return err
		}
		return codeError(exitTimeout)
	}
	return ctx.Err()
}
