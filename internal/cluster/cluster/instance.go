package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
)

// Where the journal keeps the identity of this instance.
const (
	clusterBucket = "cluster"
	instanceKey   = "instance"
)

// storedInstance is the identity of this instance as the journal stores it.
type storedInstance struct {
	report.Instance
	// Held reports whether this instance held the node's name in the cluster when it last ran.
	Held bool `json:"held,omitempty"`
}

// ClaimName has the reporter claim the node's name. A new instance starts no volume before it has the
// name.
func (c *Cluster) ClaimName(ctx context.Context) error {
	i, err := c.instance(ctx)
	if err != nil {
		return err
	}
	if !i.Held {
		c.cfg.Loop.SetHold(report.NotRead)
	}
	c.Report.Claim(report.Claimant{Instance: i.Instance, HeldBefore: i.Held, Standing: c.stand(ctx, i)})
	return nil
}

// instance returns the identity of this instance. The journal keeps its id over restarts. If the stored
// id cannot be read, instance makes a new one, which has to claim the name like any other instance.
func (c *Cluster) instance(ctx context.Context) (storedInstance, error) {
	values, err := c.cfg.Journal.LoadBucket(ctx, clusterBucket)
	if err != nil {
		return storedInstance{}, fmt.Errorf("read which instance this is: %w", err)
	}
	var i storedInstance
	if value, ok := values.Sound[instanceKey]; !ok || json.Unmarshal(value, &i) != nil || i.ID == "" {
		i = storedInstance{Instance: report.Instance{ID: strings.ToLower(rand.Text())}}
	}
	if i.Host, err = os.Hostname(); err != nil {
		return storedInstance{}, fmt.Errorf("read the host's name: %w", err)
	}
	i.PID, i.Root, i.BootID = os.Getpid(), c.cfg.Root, c.cfg.BootID
	return i, c.keepInstance(ctx, i)
}

func (c *Cluster) keepInstance(ctx context.Context, i storedInstance) error {
	value, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("store which instance this is: %w", err)
	}
	if err := c.cfg.Journal.CommitBucket(ctx, clusterBucket, map[string][]byte{instanceKey: value}); err != nil {
		return fmt.Errorf("store which instance this is: %w", err)
	}
	return nil
}

// stand returns the callback that reports whether this daemon holds the node's name.
func (c *Cluster) stand(ctx context.Context, i storedInstance) func(holds bool, why string) {
	last := ""
	return func(holds bool, why string) {
		c.cfg.Loop.SetHold(why)
		if why != last {
			c.cfg.Logger.Warn("claim of the node's name", "holds", holds, "why", why)
			last = why
			c.cfg.Changed()
		}
		if holds == i.Held {
			return
		}
		i.Held = holds
		if err := c.keepInstance(ctx, i); err != nil {
			c.cfg.Logger.Warn("cannot store who holds the node's name; the next start will wait for the API server", "err", err)
		}
	}
}
