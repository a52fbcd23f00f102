package main

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// A template prints whole numbers without a fraction or an exponent.
func TestATemplateWritesWholeNumbers(t *testing.T) {
	got, err := render(server.ClaimStatus{CapacityBytes: 1 << 40}, "jsonpath={.capacityBytes}")
	if err != nil || string(got) != "1099511627776" {
		t.Errorf("got %s, %v", got, err)
	}
}
