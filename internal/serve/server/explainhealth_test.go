package server

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestWhatADriverSaysIsWrongIsExplained: about a volume, and about a driver's storage.
//
// Items: O03, N-87.
func TestWhatADriverSaysIsWrongIsExplained(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f := Facts{
		Now:     at,
		Volumes: []manager.VolumeStatus{{Volume: state.Volume{ID: "d^v", Spec: &state.Spec{Driver: "d", Handle: "v", Name: "v"}}}},
		Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: "d"}, Up: true}},
		Stats: []stats.Status{
			{Key: "d^v", Driver: "d", At: at.Add(-time.Minute), Health: stats.Abnormal, HealthSince: at.Add(-10 * time.Minute), Conditions: []stats.Condition{{Status: "DEGRADED", Reason: "OneDisk", Message: "one disk of two"}}},
			{Key: "driver d", Driver: "d", Asking: at.Add(-5 * time.Minute)},
		},
	}
	for kind, want := range map[string]string{
		"volume": "driver d says: DEGRADED: OneDisk: one disk of two (for 10m, as of 60s ago)",
		"driver": "not known: driver d was asked 5m ago and has not answered",
	} {
		e, err := Explain(f, kind, map[string]string{"volume": "v", "driver": "d"}[kind])
		if err != nil || !strings.Contains(e.String(), want) {
			t.Errorf("%v: got\n%swant %s in it", err, e, want)
		}
	}
	f.Stats[0].Health = stats.Healthy
	f.Stats[1].Asking = at.Add(-time.Second)
	for kind, name := range map[string]string{"volume": "v", "driver": "d"} {
		if e, err := Explain(f, kind, name); err != nil || strings.Contains(e.String(), "health") {
			t.Errorf("%v: where all is well: %s", err, e)
		}
	}
}

// The explanation attributes a Controller service's report to it, also for a claim whose volume is not on this node.
func TestWhatAControllerServiceSaysIsExplained(t *testing.T) {
	f := Facts{
		Now:    now,
		Claims: []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Bound", Volume: "pvc-1", Driver: "d", RequestedBytes: 1, CapacityBytes: 1}},
		Stats: []stats.Status{
			{Key: "d^v", Driver: "d", Claim: "default/data", At: before(time.Minute), Health: stats.Abnormal, HealthSince: before(10 * time.Minute), Conditions: []stats.Condition{{Status: "DATA_LOSS", Reason: "TwoDisks", Controller: true}}},
			{Key: "d^w", Driver: "d", Claim: "default/other", At: before(time.Minute), Health: stats.Abnormal, Conditions: []stats.Condition{{Status: "DEGRADED", Controller: true}}},
		},
	}
	for kind, name := range map[string]string{"pvc": "default/data", "volume": "data"} {
		e, err := Explain(f, kind, name)
		if want := "the Controller service of driver d says: DATA_LOSS: TwoDisks (for 10m, as of 60s ago)"; err != nil || !strings.Contains(e.String(), want) || strings.Contains(e.String(), "DEGRADED") {
			t.Errorf("%v: got\n%swant %s in it", err, e, want)
		}
	}
}
