package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
)

func TestUsersOfDriversAreByDriver(t *testing.T) {
	got, err := driverUIDs([]string{"a=1000", "b=7", "a=65534"})
	if err != nil || !slices.Equal(got["a"], []uint32{1000, 65534}) || !slices.Equal(got["b"], []uint32{7}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "a=", "=1", "*=1", "a=x", "a=-1", "a=4294967296"} {
		if got, err := driverUIDs([]string{bad}); err == nil || !strings.Contains(err.Error(), "DRIVER=UID") {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

// Sidecars: SA-15, SP-48, SR-16, SS-28.
func TestDeadlinesAreByDriverAndCall(t *testing.T) {
	got, err := deadlines([]string{"slow/NodeStageVolume=1h", "*/NodeStageVolume=5m", "*/Info=1m", "slow/NodeExpandVolume=2h"})
	want := map[state.DriverName]csiclient.Deadlines{
		resolve.Any: {Stage: 5 * time.Minute, Info: time.Minute},
		"slow":      {Stage: time.Hour, Expand: 2 * time.Hour, Info: time.Minute},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"slow", "slow/NodeStageVolume", "slow/NodeStageVolume=x", "/NodeStageVolume=1s", "slow/Stage=1s", "slow/NodeStageVolume=-1s", "*/NodeStageVolume=0"} {
		if got, err := deadlines([]string{bad}); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

func TestInlineRulesAreNamespaceAndDriver(t *testing.T) {
	if got, err := inlineRules(nil); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	got, err := inlineRules([]string{"shop/secrets.example.com", "*/cache.example.com"})
	want := []resolve.InlineRule{{Namespace: "shop", Driver: "secrets.example.com"}, {Namespace: "*", Driver: "cache.example.com"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"shop", "shop/", "/d"} {
		if got, err := inlineRules([]string{bad}); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

func TestUnmountStepsGoFromForceToLazy(t *testing.T) {
	got, err := unmountSteps([]string{"kubernetes.io/nfs=force@5m,lazy@1h", "*=lazy@24h"})
	want := plan.Ladders{
		"kubernetes.io/nfs": {{Step: state.UnmountForce, After: 5 * time.Minute}, {Step: state.UnmountLazy, After: time.Hour}},
		plan.AnyDriver:      {{Step: state.UnmountLazy, After: 24 * time.Hour}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, kind := range []string{"kubernetes.io/nfs", "kubernetes.io/cephfs", "kubernetes.io/glusterfs", "csi.example.com"} {
		if _, err := unmountSteps([]string{kind + "=force@1s"}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if got, err := unmountSteps(nil); len(got) > 0 || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	for _, bad := range [][]string{
		{"*"},
		{"*="},
		{"*=force"},
		{"*=force@x"},
		{"*=force@-1s"},
		{"*=kill@1s"},
		{"=force@1s"},
		{"*=lazy@1s,force@2s"},
		{"*=force@2s,lazy@1s"},
		{"*=force@1s,force@2s"},
		{"*=force@1s", "*=lazy@2s"},
		{"kubernetes.io/empty-dir=force@1s"},
	} {
		if got, err := unmountSteps(bad); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

func TestInlineRules(t *testing.T) {
	if rules, err := inlineRules(nil); err != nil || rules != nil {
		t.Errorf("no value lets everybody: %v, %v", rules, err)
	}
	if rules, err := inlineRules([]string{"none"}); err != nil || rules == nil || len(rules) != 0 {
		t.Errorf("none allows a namespace: %v, %v", rules, err)
	}
	if rules, err := inlineRules([]string{"team/kubernetes.io/nfs"}); err != nil || len(rules) != 1 || rules[0].Namespace != "team" || rules[0].Driver != "kubernetes.io/nfs" {
		t.Errorf("a kind: %v, %v", rules, err)
	}
	for _, bad := range []string{"team", "/d", "team/"} {
		if _, err := inlineRules([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestNodeLabelsAreKeysAndValues(t *testing.T) {
	if got, err := nodeLabels(nil); len(got) > 0 || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	got, err := nodeLabels([]string{"topology.kubernetes.io/zone=a", "rack=", "disk=ssd"})
	want := map[string]string{"topology.kubernetes.io/zone": "a", "rack": "", "disk": "ssd"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for bad, words := range map[string]string{
		"zone": "expected KEY=VALUE", "=a": "expected KEY=VALUE", "a b=c": "expected KEY=VALUE", "zone=a b": "expected KEY=VALUE",
		"disk=hdd": "expected each key once", "kubernetes.io/hostname=x": "--node-name=x",
	} {
		if got, err := nodeLabels([]string{"disk=ssd", bad}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, %v, want %q", bad, got, err, words)
		}
	}
	o := runOptions{
		node: wire.Config{Root: "/r", StateDir: "/s", Name: "n"}, socket: "/k", kubeconfig: "/c",
		rules: rules{nodeLabels: []string{"disk=ssd"}},
	}
	if err := o.complete(); err == nil || !strings.Contains(err.Error(), "--node-label and --kubeconfig") {
		t.Errorf("in a cluster: %v", err)
	}
}
