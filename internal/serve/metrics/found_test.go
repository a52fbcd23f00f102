package metrics

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Items: E15, E08.
func TestWhatWasFoundAtTheStart(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := RegisterFound(r, func() manager.Found { return manager.Found{Volumes: 9, Unreadable: 2, Changed: 3} }); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP csi_volmgr_found_changed_volumes_total Number of volumes found at the start whose mounts had changed since the daemon left them.
# TYPE csi_volmgr_found_changed_volumes_total counter
csi_volmgr_found_changed_volumes_total 3
# HELP reconstruct_volume_operations_errors_total Number of volumes that were found at the start and whose record could not be read.
# TYPE reconstruct_volume_operations_errors_total counter
reconstruct_volume_operations_errors_total 2
# HELP reconstruct_volume_operations_total Number of volumes that were found at the start.
# TYPE reconstruct_volume_operations_total counter
reconstruct_volume_operations_total 9
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
