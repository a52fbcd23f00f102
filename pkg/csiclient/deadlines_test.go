package csiclient

import (
	"strings"
	"testing"
	"time"
)

// Items: N-25.
// Sidecars: SL-02.
func TestEachCallsDeadlineCanBeSet(t *testing.T) {
	var d Deadlines
	for i, rpc := range []string{nodeStage, nodePublish, nodeUnpublish, nodeUnstage, nodeExpand, nodeStats, "Info"} {
		must(t, d.Set(rpc, time.Duration(i+1)*time.Hour))
	}
	if want := (Deadlines{1 * time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 5 * time.Hour, 6 * time.Hour, 7 * time.Hour}); d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if got := d.Longest(); got != 5*time.Hour {
		t.Errorf("the longest is %v", got)
	}
	if got := (Deadlines{Stage: time.Second}).Longest(); got != defaultTimeout {
		t.Errorf("the longest of a short one and the defaults is %v", got)
	}
	if err := d.Set("NodeGetInfo", time.Second); err == nil || !strings.Contains(err.Error(), `"NodeGetInfo": not one of Info, NodeExpandVolume, `) {
		t.Errorf("%v", err)
	}
	if err := d.Set(nodeStage, 0); err == nil {
		t.Error("a deadline of nothing")
	}
}
