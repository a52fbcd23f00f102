package wire

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The node records and measures calls, and counts the states of volumes.
//
// Items: O05.
func TestCallsAreRecordedAndMeasured(t *testing.T) {
	r := prometheus.NewRegistry()
	c := dirs(t)
	c.Metrics = r
	n, _ := start(t, c)
	apply(t, n, scratchPod)
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	id := n.Manager().Volumes()[0].Volume.ID
	calls := n.Calls(id)
	if len(calls) != 1 || calls[0].Op != plan.Publish || calls[0].Pod != uid || calls[0].Error != "" || calls[0].TookNanos <= 0 || calls[0].Began.IsZero() {
		t.Errorf("one Publish was made; recorded is %+v", calls)
	}
	for _, name := range []string{"storage_operation_duration_seconds", "volume_manager_total_volumes", "csi_volmgr_driver_up", "reconstruct_volume_operations_total", "csi_volmgr_pods"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n == 0 {
			t.Errorf("%s: %d series, %v", name, n, err)
		}
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
