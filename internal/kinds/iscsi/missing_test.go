package iscsi_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
)

// A volume whose Stage failed because iscsiadm is not installed is unstaged without iscsiadm: nothing was begun. So it
// leaves the Node's list of volumes in use, and its pod can be removed.
func TestAStageThatBeganNothingEndsWithoutIscsiadm(t *testing.T) {
	for name, config := range map[string]string{
		"plain":            plain,
		"an own initiator": `{"targetPortal": "192.0.2.1", "iqn": "` + iqn + `", "lun": 0, "initiatorName": "iqn.2024-01.example:own"}`,
	} {
		n := newNode(t)
		there := n.Programs["iscsiadm"]
		n.Programs["iscsiadm"] = func([]string) error { return program.ErrMissing }
		v := n.volume("data", config)
		if err := n.driver.Stage(t.Context(), v); !errors.Is(err, program.ErrMissing) {
			t.Fatalf("%s: stage: %v", name, err)
		}
		if err := n.driver.Unstage(t.Context(), v); err != nil {
			t.Errorf("%s: unstage: %v", name, err)
		}
		n.Programs["iscsiadm"] = there
	}
}

// A record of open-iscsi, which may have a password, is not left behind: the program that removes it has to come back.
func TestWhatIscsiadmMadeIsKeptUntilItIsBack(t *testing.T) {
	n := newNode(t)
	n.dead["192.0.2.1:3260"] = true
	v := n.volume("data", plain)
	if err := n.driver.Stage(t.Context(), v); err == nil {
		t.Fatal("a portal that does not answer")
	}
	there := n.Programs["iscsiadm"]
	n.Programs["iscsiadm"] = func([]string) error { return program.ErrMissing }
	if err := n.driver.Unstage(t.Context(), v); !errors.Is(err, program.ErrMissing) {
		t.Errorf("unstage: %v", err)
	}
	n.Programs["iscsiadm"] = there
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Errorf("with the program: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(n.db, "send_targets", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
