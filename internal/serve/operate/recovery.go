package operate

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// AcceptRecovery records an operator's word that no unknown pod uses the mounts that have no record
// (server.Operator). It returns those mounts.
func (o *Operator) AcceptRecovery(ctx context.Context, by audit.By, reason string) ([]state.Place, error) {
	places := o.c.Manager.Unrecorded().Places
	r := o.c.Journal.Recovery()
	if !r.Lost() {
		return nil, fmt.Errorf("%w: the journal has lost no records, or their loss is accepted already", server.ErrNotFound)
	}
	act := audit.Act{By: by, Verb: "accept recovery", Object: r.Why, Reason: reason}
	return places, o.c.Audit.Do(act, func() (string, error) {
		if err := o.c.Journal.AcceptRecovery(context.WithoutCancel(ctx)); err != nil {
			return "", err
		}
		o.c.Manager.AcceptUnrecorded()
		o.c.Accepted()
		paths := make([]string, 0, len(places))
		for _, p := range places {
			paths = append(paths, p.Path)
		}
		return fmt.Sprintf("mounted without a record: %v", paths), nil
	})
}
