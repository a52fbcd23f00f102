package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The explanation of an unmount says which step is being tried, for how long, and what comes next.
func TestTheLadderIsExplained(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	volume := func(c plan.UnmountProgress, inFlight plan.Op) server.Facts {
		c.Kind, c.Path = plan.Unstage, "/stage"
		v := manager.VolumeStatus{
			Volume: state.Volume{ID: "d^v", Spec: &state.Spec{Driver: "d", Handle: "v", Name: "pv"}, Stage: state.Fact{
				Phase: state.Leaving, Failed: &state.Retry{Attempts: 3, Since: now.Add(-time.Hour), Call: "NodeUnstageVolume", Error: "busy"},
			}},
			Unmount: &c, Call: inFlight, Since: now.Add(-5 * time.Second),
		}
		if inFlight.Kind == plan.None {
			v.Held = plan.Held{Step: plan.Unstage, Reason: "waiting"}
		}
		return server.Facts{Volumes: []manager.VolumeStatus{v}, Drivers: []manager.DriverStatus{{DriverInfo: manager.DriverInfo{Name: "d"}, Up: true}}, Now: now}
	}
	hour := now.Add(-time.Hour)
	for want, f := range map[string]server.Facts{
		"normal of /stage, failing for 60m; no harder step follows automatically":         volume(plan.UnmountProgress{Since: hour}, plan.Op{}),
		"normal of /stage, failing for 60m; by policy force comes in 10m, which may lose": volume(plan.UnmountProgress{Since: hour, Next: state.UnmountForce, At: now.Add(10 * time.Minute)}, plan.Op{}),
		"force of /stage, failing for 60m; by policy lazy comes next, which may lose":     volume(plan.UnmountProgress{Step: state.UnmountForce, Since: hour, Next: state.UnmountLazy}, plan.Op{}),
		"lazy of /stage, under way for 5s; no harder step":                                volume(plan.UnmountProgress{Step: state.UnmountLazy, Since: hour}, plan.Op{Kind: plan.Unstage, Step: state.UnmountLazy}),
	} {
		e, err := server.Explain(f, "volume", "v")
		if err != nil || !strings.Contains(e.String(), want) {
			t.Errorf("%v: want %q in\n%s", err, want, e)
		}
	}
}
