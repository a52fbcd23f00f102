package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Faults: A175.
func TestAnOutageIsMeasured(t *testing.T) {
	r := prometheus.NewRegistry()
	var since time.Time
	now := time.Unix(1000, 0)
	if err := RegisterOutage(r, func() time.Time { return since }, func() time.Time { return now }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		since time.Time
		want  string
	}{{time.Time{}, "0"}, {now.Add(-90 * time.Second), "90"}, {now.Add(time.Second), "0"}} {
		since = c.since
		want := `
# HELP csi_volmgr_api_server_away_seconds How long the API server has been away; 0 while it answers, and without a cluster.
# TYPE csi_volmgr_api_server_away_seconds gauge
csi_volmgr_api_server_away_seconds ` + c.want + "\n"
		if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
}
