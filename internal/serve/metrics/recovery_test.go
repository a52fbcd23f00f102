package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Faults: A186.
func TestRecordsThatMayBeLostAreMeasured(t *testing.T) {
	r := prometheus.NewRegistry()
	var lost state.Recovery
	var u manager.Unrecorded
	if err := RegisterRecovery(r, func() state.Recovery { return lost }, func() manager.Unrecorded { return u }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		want string
	}{{"", "0 0"}, {"damaged", "1 2"}} {
		if lost.Why = c.why; c.why != "" {
			u.Places = make([]state.Place, 2)
		}
		journal, mounts, _ := strings.Cut(c.want, " ")
		want := `
# HELP csi_volmgr_journal_recovered 1 after the journal may have lost records, until an operator accepts that; else 0.
# TYPE csi_volmgr_journal_recovered gauge
csi_volmgr_journal_recovered ` + journal + `
# HELP csi_volmgr_unrecorded_mounts Number of volume mounts without a record after the journal may have lost records; they count as in use.
# TYPE csi_volmgr_unrecorded_mounts gauge
csi_volmgr_unrecorded_mounts ` + mounts + `
`
		if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
}
