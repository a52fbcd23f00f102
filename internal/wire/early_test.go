package wire

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// TestNothingIsDeletedBeforeItIsKnown: a daemon that just started answers before it knows the stored objects and the
// users of volumes.
func TestNothingIsDeletedBeforeItIsKnown(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	apply(t, n, scratchPod)
	stop()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.DeletePod(over, "default", "web"); err == nil || errors.Is(err, server.ErrNotFound) {
		t.Errorf("a pod that was applied: %v", err)
	}
	if _, err := n.DeleteClaim(over, audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "data"}); !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "source api has not spoken") {
		t.Errorf("a claim that any pod may want: %v", err)
	}
}

// A claim may be applied as soon as there is a node, before Run: the node's storage id is chosen by then.
func TestTheStorageIDIsChosenBeforeAnyClaim(t *testing.T) {
	c := dirs(t)
	c.StorageID = "one"
	for _, stopped := range []bool{true, false} { // adopt and release choose nothing
		c.Stopped = stopped
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if name := n.controller.VolumeName("u"); (name == "pvc-u") != stopped {
			t.Errorf("stopped %v: %s", stopped, name)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
