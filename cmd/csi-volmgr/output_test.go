package main

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/server"
)

// A template writes whole numbers as they are.
func TestATemplateWritesWholeNumbers(t *testing.T) {
	got, err := render(server.ClaimStatus{CapacityBytes: 1 << 40}, "jsonpath={.capacityBytes}")
	if err != nil || string(got) != "1099511627776" {
		t.Errorf("got %s, %v", got, err)
	}
}
