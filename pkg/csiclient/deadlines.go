package csiclient

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Set sets the deadline of the call named rpc ("NodeStageVolume"); Info stands
// for all calls together that ask a driver what it is.
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

// ofVerbs are the deadlines of the calls that change something.
func (d *Deadlines) ofVerbs() map[string]*time.Duration {
	return map[string]*time.Duration{
		nodeStage: &d.Stage, nodePublish: &d.Publish, nodeUnpublish: &d.Unpublish, nodeUnstage: &d.Unstage,
		nodeExpand: &d.Expand,
	}
}

// serviceConfig has gRPC itself end the calls of the verbs: it makes a context of
// its own for each call anyhow, and one more around that is half a dozen allocations.
// The context that a verb is called with still ends it earlier.
func (d Deadlines) serviceConfig() string {
	type name struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}
	type method struct {
		Name    []name `json:"name"`
		Timeout string `json:"timeout"`
	}
	var config struct {
		Methods []method `json:"methodConfig"`
	}
	for rpc, t := range d.ofVerbs() {
		seconds := fmt.Sprintf("%d.%09ds", *t/time.Second, *t%time.Second)
		config.Methods = append(config.Methods, method{[]name{{csi.Node_ServiceDesc.ServiceName, rpc}}, seconds})
	}
	b, err := json.Marshal(config)
	if err != nil {
		panic(err) // of strings alone
	}
	return string(b)
}

// Longest is the longest deadline of a call that changes something.
func (d Deadlines) Longest() time.Duration {
	d = d.withDefaults()
	return max(d.Stage, d.Publish, d.Unpublish, d.Unstage, d.Expand)
}
