package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// copyOptions has the flags of the verbs that make a claim with the data of another.
type copyOptions struct {
	namespace, class, size string
	timeout                time.Duration
}

func (o *copyOptions) flags(cmd *cobra.Command) {
	namespaceFlag(cmd, &o.namespace)
	cmd.Flags().StringVar(&o.class, "class", "", "`name` of the new claim's StorageClass (default the other claim's)")
	cmd.Flags().StringVar(&o.size, "size", "", "`quantity` that the new claim requests (default the other's)")
	cmd.Flags().DurationVar(&o.timeout, "timeout", snapshotWait, "how long to wait for it to be bound; 0 means no wait")
}

func (p *program) snapshotRestoreCommand() *cobra.Command {
	var o copyOptions
	cmd := &cobra.Command{
		Use:   "restore NAME pvc/NEW",
		Short: "Make a claim with the data of a snapshot",
		Long: `Make a new claim whose volume has the data of a snapshot, and wait until it is bound. The
snapshot's own claim does not change. The new claim has that claim's class, access modes
and mode, if it still exists, and its size, or what the snapshot needs if that is more.

Exit code 124 means that the claim was not bound in time; the driver continues.`,
		Example: `  csi-volmgr snapshot restore data-20261125-164500 pvc/data-of-monday
  csi-volmgr snapshot restore before-the-upgrade pvc/data -n shop --class=fast --size=20Gi`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("expected the name of a snapshot and pvc/NEW")
			}
			t, err := oneTarget(args[1:], "pvc")
			if err != nil {
				return err
			}
			return p.restore(cmd.Context(), args[0], t.name, o)
		},
	}
	o.flags(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.names(cmd, "snapshots", "")
	}
	return cmd
}

func (p *program) cloneCommand() *cobra.Command {
	var o copyOptions
	cmd := &cobra.Command{
		Use:   "clone pvc/NAME pvc/NEW",
		Short: "Make a claim with the data of another claim",
		Long: `Make a new claim whose volume has the present data of another claim's volume, and wait until
it is bound. The new claim has the class, access modes, mode and size of the other.

Exit code 124 means that the claim was not bound in time; the driver continues.`,
		Example: `  csi-volmgr clone pvc/data pvc/data-for-tests`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ts, err := targets(args, "pvc")
			if err != nil {
				return err
			}
			if len(ts) != 2 || ts[1].name == "" {
				return usagef("expected pvc/NAME and pvc/NEW")
			}
			return p.clone(cmd.Context(), ts[0].name, ts[1].name, o)
		},
	}
	o.flags(cmd)
	p.completes(cmd, "pvc")
	return cmd
}

func (p *program) restore(ctx context.Context, name, to string, o copyOptions) error {
	c := p.client()
	defer c.Close()
	s, err := snapshotOf(ctx, c, o.namespace, name)
	if err != nil {
		return orCluster(ctx, c, err, snapshotThere)
	}
	from := server.ClaimStatus{AccessModes: []state.AccessMode{state.ReadWriteOnce}, Mode: state.Filesystem}
	if s.Claim != "" {
		switch claim, err := p.claimOf(ctx, c, o.namespace, s.Claim); {
		case err == nil:
			from = claim
		case !errors.Is(err, server.ErrNotFound):
			return err
		}
	}
	group := resolve.SnapshotGroup
	return p.copyClaim(ctx, c, copied{
		name: to, like: from, bytes: restoredBytes(s, from), least: s.RestoreBytes,
		source: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: resolve.KindSnapshot, Name: name},
	}, o)
}

// restoredBytes is the size of the copy of a snapshot: a driver's size of a snapshot may be that of an archive, and a
// volume that is no larger would be full.
func restoredBytes(s server.SnapshotStatus, from server.ClaimStatus) int64 {
	return max(s.RestoreBytes, from.CapacityBytes)
}

func (p *program) clone(ctx context.Context, name, to string, o copyOptions) error {
	c := p.client()
	defer c.Close()
	from, err := p.claimOf(ctx, c, o.namespace, name)
	if err != nil {
		return orCluster(ctx, c, err, claimThere)
	}
	return p.copyClaim(ctx, c, copied{
		name: to, like: from, bytes: max(from.CapacityBytes, from.RequestedBytes),
		source: &corev1.TypedLocalObjectReference{Kind: resolve.KindClaim, Name: name},
	}, o)
}

// copied is a claim to be made: like another, of at least the given size, with the data of source.
type copied struct {
	name   string
	like   server.ClaimStatus
	bytes  int64
	least  int64 // the size that the source needs; 0 if it is unknown
	source *corev1.TypedLocalObjectReference
}

// copyClaim makes the claim and waits for its volume.
func (p *program) copyClaim(ctx context.Context, c *client.Client, to copied, o copyOptions) error {
	claim, err := to.claim(o)
	if err != nil {
		return err
	}
	if _, err := p.claimOf(ctx, c, o.namespace, to.name); err == nil {
		return fmt.Errorf("%w: claim %s/%s is there already", server.ErrConflict, o.namespace, to.name)
	} else if !errors.Is(err, server.ErrNotFound) {
		return err
	}
	if err := p.applyObject(ctx, c, claim); err != nil {
		return err
	}
	return p.awaitClaim(ctx, c, o.namespace, to.name, o.timeout)
}

// claim returns the claim to be made; the options override the other claim.
func (to copied) claim(o copyOptions) (corev1.PersistentVolumeClaim, error) {
	var none corev1.PersistentVolumeClaim
	amount := *quantity.NewQuantity(to.bytes, quantity.BinarySI)
	if o.size != "" {
		var err error
		if amount, err = quantity.ParseQuantity(o.size); err != nil || amount.Sign() <= 0 {
			return none, usagef("--size=%s: expected a quantity such as 20Gi", o.size)
		}
		if amount.CmpInt64(to.least) < 0 {
			return none, usagef("--size=%s: expected at least %s, which %s needs", o.size, size(to.least), to.source.Name)
		}
	}
	class := cmp.Or(o.class, to.like.Class)
	switch {
	case amount.IsZero():
		return none, usagef("neither the snapshot nor its claim has a size: give --size")
	case class == "":
		return none, usagef("no class is known for the new claim: give --class")
	}
	mode := corev1.PersistentVolumeMode(to.like.Mode)
	claim := corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Name: to.name, Namespace: o.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeMode: &mode, DataSource: to.source,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: amount}},
		},
	}
	for _, m := range to.like.AccessModes {
		claim.Spec.AccessModes = append(claim.Spec.AccessModes, corev1.PersistentVolumeAccessMode(m))
	}
	return claim, nil
}

// awaitClaim waits until a claim is bound or refused.
func (p *program) awaitClaim(ctx context.Context, c *client.Client, ns, name string, timeout time.Duration) error {
	var last server.ClaimStatus
	w := await{
		what: "persistentvolumeclaim/" + name, word: "bound", timeout: timeout, reason: func() string { return last.Reason },
		watch: func(ctx context.Context) error {
			return c.WatchClaims(ctx, func(e server.Event[server.ClaimStatus]) error {
				if s := e.Item; s.Namespace == ns && s.Name == name {
					last = s
				}
				switch {
				case last.Volume != "":
					return errReached
				case last.Refused && last.Name != "":
					return fmt.Errorf("%w: claim %s/%s: %s", server.ErrConflict, ns, name, last.Reason)
				}
				return nil
			})
		},
	}
	return p.await(ctx, w)
}
