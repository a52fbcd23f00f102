package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/ephemeral"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// newEphemeral returns the source of the claims of generic ephemeral volumes.
func newEphemeral(o *Objects) *ephemeral.Provider {
	return ephemeral.New(ephemeral.Config{
		KV: o.c.Journal, Catalog: o.c.Catalog, Claims: ephemeralClaims{o}, Lost: o.c.Lost, Logger: o.c.Logger,
		Silent: func() bool {
			silent := o.c.SilentSources()
			return slices.Contains(silent, api.Name) || slices.Contains(silent, file.Name)
		},
	})
}

// ephemeralClaims deletes the claims of generic ephemeral volumes with their pods (ephemeral.Claims).
type ephemeralClaims struct{ *Objects }

// ClaimsKnown implements ephemeral.Claims.
func (e ephemeralClaims) ClaimsKnown() <-chan struct{} { return e.c.Controller.Loaded() }

// ClaimsChanged implements ephemeral.Claims.
func (e ephemeralClaims) ClaimsChanged() <-chan struct{} { return e.c.Changed() }

// Left implements ephemeral.Claims.
func (e ephemeralClaims) Left(claim source.Key) string {
	c, _ := e.c.Controller.Claim(made.ClaimKey(claim))
	switch {
	case c.Phase == controller.Deleting:
		return "the volume of an earlier claim of that name is being deleted"
	case c.Volume == nil:
		return ""
	}
	return fmt.Sprintf("an earlier claim of that name has left volume %s with its data; delete it: csi-volmgr delete pvc "+
		"%s -n %s --data", c.Volume.Name, claim.Name, claim.Namespace)
}

// DeleteEphemeral implements ephemeral.Claims. The data of a volume with reclaimPolicy Retain goes to a claim of
// another name, since the next pod's volume begins empty.
func (e ephemeralClaims) DeleteEphemeral(
	ctx context.Context, claim source.Key, reason string,
) (note string, err error) {
	key := made.ClaimKey(claim)
	by := audit.Peer(uint32(os.Geteuid()), int32(os.Getpid()))
	if c, _ := e.c.Controller.Claim(key); c.Volume == nil || policyOf(e.c.Catalog, *c.Volume) != controller.Retain {
		d := server.ClaimDeletion{Namespace: claim.Namespace, Name: claim.Name, Reason: reason}
		withdrawn := func(context.Context, source.Key) error { return nil } // the source has withdrawn it already
		return e.deleteOf(ctx, by, d, withdrawn)
	} else if err := e.waitUnused(ctx, key, *c.Volume); err != nil {
		return "", err
	}
	act := audit.Act{By: by, Verb: "delete pvc", Object: key.String(), Reason: reason}
	err = e.c.Audit.Do(act, func() (string, error) {
		note, err = e.setAside(ctx, claim)
		return note, err
	})
	return note, err
}

// asideTries limits how many names are tried for data that is set aside within one second.
const asideTries = 100

// setAside gives the volume of a claim to a claim that no source lists.
func (e ephemeralClaims) setAside(ctx context.Context, claim source.Key) (note string, err error) {
	suffix := ".removed-" + time.Now().UTC().Format("20060102-150405")
	for n := 1; ; n++ {
		to := claim
		to.Name = claim.Name[:min(len(claim.Name), maxName-len(suffix)-4)] + suffix
		if n > 1 {
			to.Name += "-" + strconv.Itoa(n)
		}
		err := controller.ErrTaken
		if e.c.Catalog.Provider(to) == "" {
			err = e.c.Controller.Move(ctx, made.ClaimKey(claim), made.ClaimKey(to), nil)
		}
		switch {
		case errors.Is(err, controller.ErrTaken) && n < asideTries:
			continue
		case err != nil:
			return "", fmt.Errorf("keep the volume of claim %s, whose reclaimPolicy is Retain: %w", made.ClaimKey(claim), err)
		}
		return fmt.Sprintf("its volume is kept with its data, since its reclaimPolicy is Retain, as that of claim %s: apply "+
			"a claim of that name to use it, or delete it with: csi-volmgr delete pvc %s -n %s --data", made.ClaimKey(to),
			to.Name, to.Namespace), e.waitMoved(ctx, made.ClaimKey(claim))
	}
}

// maxName is the greatest length of a claim's name (Kubernetes).
const maxName = 253

// podOf names the pod that a claim is made for and goes with; "" if there is none.
func podOf(claim *corev1.PersistentVolumeClaim) string {
	if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == resolve.KindPod {
		return owner.Name
	}
	return ""
}
