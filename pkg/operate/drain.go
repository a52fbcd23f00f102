package operate

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
func (o *Operator) SetDrain(ctx context.Context, by audit.By, d server.Drain) error {
	verb := "drain"
	if d.Mode == "" {
		verb, d = "undrain", server.Drain{}
	}
	return o.c.Audit.Do(audit.Act{By: by, Verb: verb, Reason: d.Reason, Detail: string(d.Mode)}, func() (string, error) {
		var value []byte
		if d.Mode != "" {
			var err error
			if value, err = json.Marshal(storedDrain{d, o.c.BootID}); err != nil {
				return "", err
			}
		}
		o.draining.Lock()
		defer o.draining.Unlock()
		if err := o.c.Journal.CommitBucket(ctx, operatorBucket, map[string][]byte{drainKey: value}); err != nil {
			return "", fmt.Errorf("%s: %w", verb, err)
		}
		o.beginDrain(d)
		_ = o.c.Manager.Settle(ctx) // the drain holds where the wait is cut short
		return "", nil
	})
}

func (o *Operator) beginDrain(d server.Drain) {
	o.mu.Lock()
	o.drain = d
	o.mu.Unlock()
	o.c.Manager.SetDrain(drains[d.Mode])
}

// Draining returns how far the node is emptied (server.Drainer).
func (o *Operator) Draining() server.Drain {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.drain
}

// LoadDrain goes on with the drain of an earlier run of the daemon. A record that cannot be
// read counts as a drain, and the log says so: not mounting loses nothing.
func (o *Operator) LoadDrain(ctx context.Context) error {
	o.draining.Lock() // an operator may be quicker, and has the last word
	defer o.draining.Unlock()
	values, err := o.c.Journal.LoadBucket(ctx, operatorBucket)
	if err != nil {
		return fmt.Errorf("learn whether the node is drained: %w", err)
	}
	value, ok := values.Sound[drainKey]
	if values.Unreadable[drainKey] == "" && !ok {
		return nil
	}
	var d storedDrain
	if err := json.Unmarshal(value, &d); err != nil || drains[d.Mode] == 0 {
		o.c.Logger.Error("record of the drain cannot be read; the node counts as drained", "err", err)
		d = storedDrain{Drain: server.Drain{Mode: server.DrainHold, Reason: "record of the drain cannot be read"}}
	}
	if d.Mode == server.DrainEmpty && d.BootID != o.c.BootID {
		o.c.Logger.Info("node was emptied in an earlier boot and is used again")
		return nil
	}
	o.c.Logger.Warn("node is drained", "mode", string(d.Mode), "reason", d.Reason, "since", d.Since)
	o.beginDrain(d.Drain)
	return nil
}
