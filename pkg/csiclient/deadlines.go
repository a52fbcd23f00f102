package csiclient

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Set sets the deadline of the call named rpc ("NodeStageVolume"). "Info" names the
// deadline of all calls that read [Info] together.
func (d *Deadlines) Set(rpc string, t time.Duration) error {
	if t <= 0 {
		return fmt.Errorf("%s: found %v, want more than 0", rpc, t)
	}
	calls := d.ofVerbs()
	calls[nodeStats], calls["Info"] = &d.Stats, &d.Info
	of, ok := calls[rpc]
	if !ok {
		return fmt.Errorf("%q: not one of %s", rpc, strings.Join(slices.Sorted(maps.Keys(calls)), ", "))
	}
	*of = t
	return nil
}

// ofVerbs returns the deadlines of the calls that change something.
func (d *Deadlines) ofVerbs() map[string]*time.Duration {
	return map[string]*time.Duration{
		nodeStage: &d.Stage, nodePublish: &d.Publish, nodeUnpublish: &d.Unpublish, nodeUnstage: &d.Unstage,
		nodeExpand: &d.Expand,
	}
}

// of returns how long the call named rpc may take, and whether it is one that changes
// something.
func (d *Deadlines) of(rpc string) (t time.Duration, changes bool) {
	if t, ok := d.ofVerbs()[rpc]; ok {
		return *t, true
	}
	return defaultTimeout, false
}

// Longest returns the longest deadline of a call that changes something.
func (d Deadlines) Longest() time.Duration {
	d = d.withDefaults()
	return max(d.Stage, d.Publish, d.Unpublish, d.Unstage, d.Expand)
}
