package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// suspectNew takes a journal of which no daemon has ever said that it knows what is
// mounted for one that was lost, where the kernel shows volumes that it has no record
// of: both the journal and its spare copy may have been deleted.
func (n *Node) suspectNew(ctx context.Context) error {
	loaded, err := n.journal.Load(ctx)
	if err != nil || loaded.BootID != "" {
		return err
	}
	recorded := map[string]bool{}
	for _, v := range loaded.Volumes {
		recorded[v.Spec.StagePath] = true
		for _, m := range v.Mounts {
			recorded[m.Target] = true
		}
	}
	real, err := filepath.EvalSymlinks(n.cfg.Root)
	if err != nil {
		return fmt.Errorf("resolve the root directory: %w", err)
	}
	entries, err := n.kernel.List(ctx, real)
	if err != nil {
		return fmt.Errorf("look for what is mounted below %s: %w", n.cfg.Root, err)
	}
	for _, e := range entries {
		if p, is := n.layout.Place(n.cfg.Root + strings.TrimPrefix(e.Path, real)); is && !recorded[p.Path] {
			return n.journal.Suspect(ctx, "the journal is new, and something is mounted at "+p.Path)
		}
	}
	return nil
}

// AcceptRecovery is an operator's word that no pod that is not known uses what is
// mounted without a record (server.Operator). It returns what that was.
func (n *Node) AcceptRecovery(ctx context.Context, by audit.By, reason string) ([]state.Place, error) {
	places := n.manager.Unrecorded().Places
	r := n.journal.Recovery()
	if r.Why == "" {
		return nil, fmt.Errorf("%w: the journal has lost nothing that is not accepted", server.ErrNotFound)
	}
	act := audit.Act{By: by, Verb: "accept recovery", Object: r.Why, Reason: reason}
	return places, n.audit.Do(act, func() (string, error) {
		if err := n.journal.AcceptRecovery(context.WithoutCancel(ctx)); err != nil {
			return "", err
		}
		n.manager.AcceptUnrecorded()
		paths := make([]string, 0, len(places))
		for _, p := range places {
			paths = append(paths, p.Path)
		}
		return fmt.Sprintf("mounted without a record: %v", paths), nil
	})
}
