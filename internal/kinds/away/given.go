package away

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fc"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/iscsi"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// given is what a verb needs of the daemon, besides the volume: a helper has neither the
// journal nor secrets.
type given struct {
	// Volumes are the journal's volumes of the kind: Unstage keeps the devices and sessions that they share.
	Volumes []state.Volume    `json:"volumes,omitempty"`
	Secret  map[string]string `json:"secret,omitempty"`
}

// give returns what a verb needs. The caller calls done when the verb has ended or was left
// behind.
func (d *Driver) give(ctx context.Context, verb string, v state.Volume) (g given, done func(), err error) {
	done = func() {}
	shares := d.c.Kind == iscsi.Kind || d.c.Kind == fc.Kind
	if !shares || verb != "Stage" && verb != "Unstage" {
		return g, done, nil
	}
	if d.c.Kind == iscsi.Kind {
		target, secret := iscsi.Shared(*v.Spec)
		if secret && verb == "Stage" {
			if g.Secret, err = d.c.Secret(ctx, v.Spec.StageRef); err != nil {
				return g, done, err
			}
		}
		if done, err = d.targets.Lock(ctx, target); err != nil {
			return g, done, err
		}
	}
	if verb != "Unstage" {
		return g, done, nil
	}
	for _, o := range d.c.Volumes() { // only now: what another volume of the target did is in the journal
		if o.Spec.Driver == d.c.Kind {
			g.Volumes = append(g.Volumes, o)
		}
	}
	return g, done, nil
}
