package node

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
)

// Where the journal keeps how far the node is emptied.
const (
	operatorBucket = "operator"
	drainKey       = "drain"
)

// storedDrain is how far the node is emptied, as the journal has it.
type storedDrain struct {
	server.Drain
	// BootID is the boot in which it was asked for. That no container runs is
	// true of one boot only; that nothing new is to be mounted stays so.
	BootID string `json:"bootID"`
}

var drains = map[server.DrainMode]manager.Drain{
	"": 0, server.DrainHold: manager.DrainHold,
	server.DrainEmpty: manager.DrainEmpty,
}

// SetDrain says durably how far the node is emptied of volumes, and begins (server.Drainer).
func (n *Node) SetDrain(ctx context.Context, by audit.By, d server.Drain) error {
	verb := "drain"
	if d.Mode == "" {
		verb, d = "undrain", server.Drain{}
	}
	return n.audit.Do(audit.Act{By: by, Verb: verb, Reason: d.Reason, Detail: string(d.Mode)}, func() (string, error) {
		var value []byte
		if d.Mode != "" {
			var err error
			if value, err = json.Marshal(storedDrain{d, n.bootID}); err != nil {
				return "", err
			}
		}
		n.draining.Lock()
		defer n.draining.Unlock()
		if err := n.journal.CommitBucket(ctx, operatorBucket, map[string][]byte{drainKey: value}); err != nil {
			return "", fmt.Errorf("%s: %w", verb, err)
		}
		n.beginDrain(d)
		n.show(ctx)
		return "", nil
	})
}

func (n *Node) beginDrain(d server.Drain) {
	n.mu.Lock()
	n.drain = d
	n.mu.Unlock()
	n.manager.SetDrain(drains[d.Mode])
}

// Draining returns how far the node is emptied (server.Drainer).
func (n *Node) Draining() server.Drain {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.drain
}

// loadDrain goes on with what was asked of an earlier run of the daemon. What
// cannot be read holds: nothing is lost by not mounting, and it is said.
func (n *Node) loadDrain(ctx context.Context) error {
	values, err := n.journal.LoadBucket(ctx, operatorBucket)
	if err != nil {
		return fmt.Errorf("learn whether the node is drained: %w", err)
	}
	value, ok := values.Sound[drainKey]
	if values.Unreadable[drainKey] == "" && !ok {
		return nil
	}
	var d storedDrain
	if err := json.Unmarshal(value, &d); err != nil || drains[d.Mode] == 0 {
		n.log.Error("what was said of a drain cannot be read, and counts as one", "err", err)
		d = storedDrain{Drain: server.Drain{Mode: server.DrainHold, Reason: "what was said of a drain cannot be read"}}
	}
	if d.Mode == server.DrainEmpty && d.BootID != n.bootID {
		n.log.Info("node was emptied in an earlier boot and is used again")
		return nil
	}
	n.log.Warn("node is drained", "mode", string(d.Mode), "reason", d.Reason, "since", d.Since)
	n.beginDrain(d.Drain)
	return nil
}
