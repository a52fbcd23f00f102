package operate

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// AcceptRecovery is an operator's word that no pod that is not known uses what is
// mounted without a record (server.Operator). It returns what that was.
func (o *Operator) AcceptRecovery(ctx context.Context, by audit.By, reason string) ([]state.Place, error) {
	places := o.c.Manager.Unrecorded().Places
	r := o.c.Journal.Recovery()
	if !r.Lost() {
		return nil, fmt.Errorf("%w: the journal has lost nothing that is not accepted", server.ErrNotFound)
	}
	act := audit.Act{By: by, Verb: "accept recovery", Object: r.Why, Reason: reason}
	return places, o.c.Audit.Do(act, func() (string, error) {
		if err := o.c.Journal.AcceptRecovery(context.WithoutCancel(ctx)); err != nil {
			return "", err
		}
		o.c.Manager.AcceptUnrecorded()
		paths := make([]string, 0, len(places))
		for _, p := range places {
			paths = append(paths, p.Path)
		}
		return fmt.Sprintf("mounted without a record: %v", paths), nil
	})
}
