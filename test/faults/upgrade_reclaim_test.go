package faults

import (
	"strings"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// An older program's claims have the policies that they had. What volume set says since holds for the older program, too.
// A script with delete pvc --all, which deleted them, is told which and how; by names it deletes as before.
func TestUpgradeAndBackWithReclaimPolicies(t *testing.T) {
	if before == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	n := newPlace(t)
	n.program, n.StorageID = before, ""
	n.begin(csistrict.Script{})
	for _, name := range []string{"precious", "scratch", "third"} {
		n.Apply(want{name: name}.String())
		n.Eventually("claim "+name+" to be bound", func() bool {
			return n.CLI("", "get", "pvc", name, "-o", "jsonpath={.volume}").Stdout != ""
		})
	}
	replace := func(by string) {
		t.Helper()
		n.daemon.Ask()
		n.program = by
		n.start()
		n.DriverUp(driverName)
	}
	says := func(claim, policy string) {
		t.Helper()
		if got := n.Do("", "get", "pvc", claim, "-o", "jsonpath={.reclaimPolicy}"); got != policy {
			t.Errorf("claim %s has %q, want %s", claim, got, policy)
		}
	}
	replace("")
	says("precious", "Delete")
	says("scratch", "Delete")
	n.Do("", "volume", "set", "pvc/precious", "--reclaim=Retain")
	said := n.CLI("", "delete", "pvc", "--all")
	if said.Code == 0 || !strings.Contains(said.Stderr, "delete pvc --all --yes") || strings.Count(said.Stdout, "would delete") != 3 {
		t.Errorf("delete pvc --all: %+v", said)
	}
	n.Do("", "delete", "pvc", "third")

	replace(before)
	if said := n.Do("", "delete", "pvc", "precious"); !strings.Contains(said, "is kept with its data") {
		t.Errorf("the older program deletes it: %s", said)
	}
	replace("")
	says("precious", "Retain")
	n.Do("", "delete", "pvc", "--all", "--yes", "--data")
	n.verdict()
}
