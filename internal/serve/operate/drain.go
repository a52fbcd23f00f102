package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
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
	// Before is the drain of mode DrainHold that this one, of mode DrainEmpty, found. It holds again when
	// this one ends: else a node that was drained would not be after a reboot, for which systemd empties it.
	Before *server.Drain `json:"before,omitempty"`
}

// held returns the drain of mode DrainHold that is in effect, or will be when d ends; nil if there is none.
func (d storedDrain) held() *server.Drain {
	if d.Mode == server.DrainHold {
		return &d.Drain
	}
	return d.Before
}

// emptied returns what is left of d once its mode DrainEmpty has ended.
func (d storedDrain) emptied() storedDrain {
	if d.Before == nil {
		return storedDrain{}
	}
	return storedDrain{Drain: *d.Before, BootID: d.BootID}
}

var drains = map[server.DrainMode]manager.Drain{
	"": 0, server.DrainHold: manager.DrainHold,
	server.DrainEmpty: manager.DrainEmpty,
}

// SetDrain stores a drain mode durably and starts it (server.Drainer).
func (o *Operator) SetDrain(ctx context.Context, by audit.By, d server.Drain) error {
	act := audit.Act{By: by, Verb: "drain", Reason: d.Reason, Detail: string(d.Mode)}
	if d.Mode == "" {
		act.Verb, act.Reason, d = "undrain", "", server.Drain{}
	}
	return o.changeDrain(ctx, act, func(was storedDrain) storedDrain {
		is := storedDrain{Drain: d, BootID: o.c.BootID}
		if d.Mode == server.DrainEmpty {
			is.Before = was.held()
		}
		return is
	})
}

// EndEmptying ends a drain of mode DrainEmpty, and no other (server.Drainer).
func (o *Operator) EndEmptying(ctx context.Context, by audit.By) error {
	if o.Draining().Mode != server.DrainEmpty { // as at most starts of the drain unit
		return nil
	}
	act := audit.Act{By: by, Verb: "undrain", Detail: string(server.DrainEmpty)}
	return o.changeDrain(ctx, act, func(was storedDrain) storedDrain {
		if was.Mode != server.DrainEmpty {
			return was
		}
		return was.emptied()
	})
}

// changeDrain stores durably what change makes of the drain, and starts it.
func (o *Operator) changeDrain(ctx context.Context, act audit.Act, change func(was storedDrain) storedDrain) error {
	return o.c.Audit.Do(act, func() (string, error) {
		o.draining.Lock()
		defer o.draining.Unlock()
		d := change(o.currentDrain())
		// A write that is cut off may be in effect at the next start.
		if err := o.storeDrain(context.WithoutCancel(ctx), d); err != nil {
			return "", fmt.Errorf("%s: %w", act.Verb, err)
		}
		o.beginDrain(d)
		_ = o.c.Manager.Settle(ctx) // the drain is in effect even if the wait is cut short
		return "", nil
	})
}

// storeDrain makes d durable.
func (o *Operator) storeDrain(ctx context.Context, d storedDrain) error {
	var value []byte
	if d.Mode != "" {
		var err error
		if value, err = json.Marshal(d); err != nil {
			return err
		}
	}
	return o.c.Journal.CommitBucket(ctx, operatorBucket, map[string][]byte{drainKey: value})
}

func (o *Operator) beginDrain(d storedDrain) {
	o.mu.Lock()
	o.drain = d
	o.mu.Unlock()
	o.c.Manager.SetDrain(drains[d.Mode])
}

func (o *Operator) currentDrain() storedDrain {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.drain
}

// Draining returns the drain mode (server.Drainer).
func (o *Operator) Draining() server.Drain { return o.currentDrain().Drain }

// LoadDrain resumes the drain of an earlier run of the daemon.
func (o *Operator) LoadDrain(ctx context.Context) error {
	o.draining.Lock() // an operator may be quicker, and has the last word
	defer o.draining.Unlock()
	d, err := o.storedDrain(ctx)
	if err != nil || d.Mode == "" {
		return err
	}
	if lost := o.c.Journal.Recovery(); lost.Lost() {
		if d, err = o.doubtDrain(ctx, d, "the journal is older than an undrain may be: "+lost.Why); err != nil {
			o.c.Logger.Error("the next start will doubt the drain once more", "err", err) // the disk may be full
		}
	}
	o.c.Logger.Warn("node is drained", "mode", string(d.Mode), "reason", d.Reason, "since", d.Since)
	o.beginDrain(d)
	return nil
}

// storedDrain reads the drain mode of this boot; the zero value is none. If the record cannot be read, it
// logs that, and the node counts as drained: not mounting loses nothing.
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
	if d.Mode == server.DrainEmpty && d.BootID != o.c.BootID {
		o.c.Logger.Info("node was drained with mode empty in an earlier boot, which has ended")
		return d.emptied(), nil
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

// doubtDrain turns DrainEmpty into DrainHold, and returns any other mode as it is. With an error, the change
// is not durable. o.draining is held.
func (o *Operator) doubtDrain(ctx context.Context, d storedDrain, why string) (storedDrain, error) {
	if d.Mode != server.DrainEmpty {
		return d, nil
	}
	o.c.Logger.Warn("containers may run again: the drain with mode empty is one with mode hold now", "why", why)
	is := storedDrain{Drain: *cmp.Or(d.Before, &d.Drain), BootID: d.BootID}
	is.Mode = server.DrainHold
	if is.Reason != "" {
		is.Reason += "; "
	}
	is.Reason += "mode empty ended: " + why
	if err := o.storeDrain(ctx, is); err != nil {
		return is, fmt.Errorf("end the drain with mode empty, because %s: %w", why, err)
	}
	return is, nil
}
