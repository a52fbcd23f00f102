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

// Names of volumes are not known before Run has chosen the storage id, and follow from it then.
func TestNamesOfVolumesWaitForTheStorageID(t *testing.T) {
	c := dirs(t)
	c.StorageID = "one"
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if name := n.controller.VolumeName("u"); name != "" {
		t.Errorf("chosen before Run: %s", name)
	}
	if err := n.controller.ChooseStorageID(t.Context()); err != nil {
		t.Fatal(err)
	}
	if name := n.controller.VolumeName("u"); !strings.HasPrefix(name, "pvc-") || name == "pvc-u" {
		t.Errorf("its volume's name is %q", name)
	}
}
