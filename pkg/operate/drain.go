package operate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
)

// Where the journal keeps the drain mode.
const (
	operatorBucket = "operator"
	drainKey       = "drain"
)

// storedDrain is the drain mode as the journal stores it.
type storedDrain struct {
	server.Drain
	// BootID is the boot in which the drain was requested. DrainEmpty holds for that boot only, because
	// its premise, that no container runs, is known of one boot only. DrainHold holds over reboots.
	//
	// Two things end that premise within a boot, and DrainEmpty becomes DrainHold: a kubelet that ran
	// meanwhile (ContainersRan), and a journal that was replaced by an older copy, from before an undrain.
	BootID string `json:"bootID"`
}

var drains = map[server.DrainMode]manager.Drain{
	"": 0, server.DrainHold: manager.DrainHold,
	server.DrainEmpty: manager.DrainEmpty,
}

// SetDrain stores a drain mode durably and starts it (server.Drainer).
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
		// A write that is cut off may be in effect at the next start.
		if err := o.c.Journal.CommitBucket(context.WithoutCancel(ctx), operatorBucket,
			map[string][]byte{drainKey: value}); err != nil {
			return "", fmt.Errorf("%s: %w", verb, err)
		}
		o.beginDrain(d)
		_ = o.c.Manager.Settle(ctx) // the drain is in effect even if the wait is cut short
		return "", nil
	})
}

func (o *Operator) beginDrain(d server.Drain) {
	o.mu.Lock()
	o.drain = d
	o.mu.Unlock()
	o.c.Manager.SetDrain(drains[d.Mode])
}

// Draining returns the drain mode (server.Drainer).
func (o *Operator) Draining() server.Drain {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.drain
}

// LoadDrain resumes the drain of an earlier run of the daemon.
func (o *Operator) LoadDrain(ctx context.Context) error {
	o.draining.Lock() // an operator may be quicker, and has the last word
	defer o.draining.Unlock()
	d, err := o.storedDrain(ctx)
	if err != nil || d.Mode == "" {
		return err
	}
	if d.Mode == server.DrainEmpty && d.BootID != o.c.BootID {
		o.c.Logger.Info("node was drained with mode empty in an earlier boot; mounts volumes again")
		return nil
	}
	if lost := o.c.Journal.Recovery(); lost.Lost() {
		if d, err = o.doubtDrain(ctx, d, "the journal is older than an undrain may be: "+lost.Why); err != nil {
			return err
		}
	}
	o.c.Logger.Warn("node is drained", "mode", string(d.Mode), "reason", d.Reason, "since", d.Since)
	o.beginDrain(d.Drain)
	return nil
}

// storedDrain reads the drain mode; the zero value is none. If the record cannot be read, it logs that, and
// the node counts as drained: not mounting loses nothing.
func (o *Operator) storedDrain(ctx context.Context) (d storedDrain, err error) {
	values, err := o.c.Journal.LoadBucket(ctx, operatorBucket)
	if err != nil {
		return d, fmt.Errorf("read whether the node is drained: %w", err)
	}
	value, ok := values.Sound[drainKey]
	if values.Unreadable[drainKey] == "" && !ok {
		return d, nil
	}
	if err := json.Unmarshal(value, &d); err != nil || drains[d.Mode] == 0 {
		o.c.Logger.Error("record of the drain cannot be read; the node counts as drained", "err", err)
		d = storedDrain{Drain: server.Drain{Mode: server.DrainHold, Reason: "record of the drain cannot be read"}}
	}
	return d, nil
}

// ContainersRan ends an operator's word that no container runs on this node, because a kubelet has run some
// since. The daemon must not be running.
func (o *Operator) ContainersRan(ctx context.Context) error {
	o.draining.Lock()
	defer o.draining.Unlock()
	d, err := o.storedDrain(ctx)
	if err != nil {
		return err
	}
	_, err = o.doubtDrain(ctx, d, "a kubelet has run containers since")
	return err
}

// doubtDrain turns DrainEmpty into DrainHold, durably, and returns any other mode as it is. o.draining is
// held.
func (o *Operator) doubtDrain(ctx context.Context, d storedDrain, why string) (storedDrain, error) {
	if d.Mode != server.DrainEmpty {
		return d, nil
	}
	o.c.Logger.Warn("containers may run again: the drain with mode empty is one with mode hold now", "why", why)
	d.Mode = server.DrainHold
	if d.Reason != "" {
		d.Reason += "; "
	}
	d.Reason += "mode empty ended: " + why
	value, err := json.Marshal(d)
	if err == nil {
		err = o.c.Journal.CommitBucket(ctx, operatorBucket, map[string][]byte{drainKey: value})
	}
	if err != nil {
		return d, fmt.Errorf("end the drain with mode empty, because %s: %w", why, err)
	}
	return d, nil
}
