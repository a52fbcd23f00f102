package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/server/client"
)

// snapshotWait is how long a verb waits for a snapshot or a claim unless it is told otherwise.
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
	}
}

func (p *program) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Make snapshots of claims, and claims of snapshots",
		Example: `  csi-volmgr snapshot create pvc/data
  csi-volmgr get snapshots
  csi-volmgr snapshot restore data-20261125-164500 pvc/data-of-monday`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.snapshotCreateCommand(), p.snapshotRestoreCommand(), p.snapshotScheduleCommand())
	return cmd
}

func (p *program) snapshotCreateCommand() *cobra.Command {
	var ns, name, class, before, after string
	var timeout, freeze time.Duration
	cmd := &cobra.Command{
		Use:   "create pvc/NAME",
		Short: "Make a snapshot of a claim's volume",
		Long: `Make a snapshot of a claim's volume, and wait until volumes can be made of it. It is a
VolumeSnapshot, as apply -f makes one. What a pod writes meanwhile is in it or not, as
after a power cut: see docs/snapshots.md for what that means to a database.

With --freeze the file system is held still while the driver makes the snapshot, for the
time given at the most: programs that write wait. A snapshot whose freeze ended early says
so: get snapshots -o wide. --exec-before and --exec-after are commands that run as you,
outside of the freeze: the one after once the driver has cut, and also where something
failed. Where a driver copies on after the cut, the program goes on meanwhile.

Exit code 124 means that it was not ready in time; it goes on.`,
		Example: `  csi-volmgr snapshot create pvc/data
  csi-volmgr snapshot create pvc/data --freeze=10s --exec-before='podman exec db flush'
  csi-volmgr snapshot create pvc/data -n shop --name=before-the-upgrade --class=nightly`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := oneTarget(args, "pvc")
			if err != nil {
				return err
			}
			if name == "" {
				name = t.name + "-" + p.now().UTC().Format("20060102-150405")
			}
			s := snapshotv1.VolumeSnapshot{
				TypeMeta:   metav1.TypeMeta{APIVersion: resolve.SnapshotGroup + "/v1", Kind: resolve.KindSnapshot},
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
				Spec: snapshotv1.VolumeSnapshotSpec{
					Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &t.name},
				},
			}
			if class != "" {
				s.Spec.VolumeSnapshotClassName = &class
			}
			if freeze != 0 {
				s.Annotations = map[string]string{resolve.FreezeAnnotation: freeze.String()}
			}
			if _, bad := resolve.FreezeOf(&s); bad != nil {
				return usagef("--freeze=%s: expected %s", freeze, bad.Want)
			}
			return p.createSnapshot(cmd.Context(), s, hooks{before, after}, timeout)
		},
	}
	namespaceFlag(cmd, &ns)
	p.completes(cmd, "pvc")
	cmd.Flags().StringVar(&name, "name", "", "`name` of the snapshot; the claim's and the time, without it")
	cmd.Flags().StringVar(&class, "class", "", "`name` of its VolumeSnapshotClass; its driver's default, without it")
	cmd.Flags().DurationVar(&timeout, "timeout", snapshotWait, "how long to wait for it to be ready; 0 not at all")
	cmd.Flags().DurationVar(&freeze, "freeze", 0, "hold the file system still for this long at the most; up to 1m")
	cmd.Flags().StringVar(&before, "exec-before", "", "`command` for the shell before it is made")
	cmd.Flags().StringVar(&after, "exec-after", "", "`command` for the shell after it, whatever happened")
	return cmd
}

// hooks are commands of the person's, for the shell; "" is none.
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

// createSnapshot applies a snapshot between the hooks, and waits for it.
func (p *program) createSnapshot(ctx context.Context, s snapshotv1.VolumeSnapshot, h hooks, timeout time.Duration,
) error {
	c := p.client()
	defer c.Close()
	if _, err := p.claimOf(ctx, c, s.Namespace, *s.Spec.Source.PersistentVolumeClaimName); err != nil {
		return err
	}
	if _, err := snapshotOf(ctx, c, s.Namespace, s.Name); err == nil {
		return fmt.Errorf("%w: snapshot %s/%s is there already: choose another --name", server.ErrConflict, s.Namespace,
			s.Name)
	} else if !errors.Is(err, server.ErrNotFound) {
		return err
	}
	err := p.hook(ctx, h.before)
	if err == nil {
		err = p.applyObject(ctx, c, s)
	}
	cut := snapshotWait
	if timeout > 0 {
		cut = timeout
	}
	if err == nil && h.after != "" { // until then the program must not go on, whatever --timeout says
		err = p.awaitSnapshot(ctx, c, s, snapshotGoal{"cut", isCut, cut})
	}
	if failed := p.hook(context.WithoutCancel(ctx), h.after); failed != nil {
		return errors.Join(err, failed)
	}
	if err != nil {
		return err
	}
	return p.awaitSnapshot(ctx, c, s, snapshotGoal{"ready", isReady, timeout})
}

// applyObject makes an object wanted, and says so.
func (p *program) applyObject(ctx context.Context, c *client.Client, obj any) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	done, err := c.Apply(ctx, server.Manifest{Name: "the object that this verb makes", Data: data})
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

// errReached ends a watch whose goal is reached.
var errReached = errors.New("seen")

// snapshotGoal is what is waited for, and for how long.
type snapshotGoal struct {
	word    string
	reached func(server.SnapshotStatus) bool
	timeout time.Duration
}

func isReady(s server.SnapshotStatus) bool { return s.Ready }

// isCut: the driver has answered, and may copy yet.
func isCut(s server.SnapshotStatus) bool { return s.Handle != "" }

// awaitSnapshot waits until a snapshot is so far, or is refused.
func (p *program) awaitSnapshot(ctx context.Context, c *client.Client, of snapshotv1.VolumeSnapshot, goal snapshotGoal,
) error {
	ns, name := of.Namespace, of.Name
	var last server.SnapshotStatus
	w := await{
		what: "snapshot/" + name, word: goal.word, timeout: goal.timeout, reason: func() string { return last.Reason },
		watch: func(ctx context.Context) error {
			return c.WatchSnapshots(ctx, func(e server.Event[server.SnapshotStatus]) error {
				if s := e.Item; s.Namespace == ns && s.Name == name {
					last = s
				}
				switch {
				case goal.reached(last):
					return errReached
				case last.Refused && last.Name != "":
					return fmt.Errorf("%w: snapshot %s/%s: %s", server.ErrConflict, ns, name, last.Reason)
				}
				return nil
			})
		},
	}
	return p.await(ctx, w)
}

// await is what is waited for: watch ends with errReached when it is there.
type await struct {
	what, word string
	timeout    time.Duration
	watch      func(context.Context) error
	reason     func() string // why it is not there yet
}

// await waits for the time given at most.
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
