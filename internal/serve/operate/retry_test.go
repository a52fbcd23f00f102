package operate

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// A retry of a snapshot reaches the controller, and is in the audit log.
func TestASnapshotIsTriedAgain(t *testing.T) {
	var told []controller.Key
	log := audit.Open(t.TempDir(), nil)
	o := New(Config{Audit: log, RetrySnapshot: func(k controller.Key) { told = append(told, k) }})
	if err := o.Retry(t.Context(), audit.By{UID: 7}, server.Retry{Snapshot: "shop/monday"}); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0] != (controller.Key{Namespace: "shop", Name: "monday"}) {
		t.Errorf("the controller was told of %v", told)
	}
	var groups []controller.Key
	o = New(Config{Audit: log, RetryGroup: func(k controller.Key) { groups = append(groups, k) }})
	if err := o.Retry(t.Context(), audit.By{}, server.Retry{Snapshot: "shop/g", Group: true}); err != nil || len(groups) != 1 {
		t.Errorf("of a group: %v, %v", groups, err)
	}
	lines, err := log.Lines()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 4 || lines[2].Begins.Verb != "retry groupsnapshot" || lines[0].Begins.Verb != "retry snapshot" || lines[0].Begins.Object != "shop/monday" || lines[0].Begins.By.UID != 7 {
		t.Errorf("the audit log: %+v", lines)
	}
}
