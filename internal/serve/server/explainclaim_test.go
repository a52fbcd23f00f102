package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// growthRefused is a mounted volume that is smaller than its claim asks for.
func growthRefused() Facts {
	f := allFine()
	f.Claims = []ClaimStatus{{
		Namespace: "default", Name: "data", Phase: "Bound", Volume: "pv-data", Driver: nfs, Class: "fast",
		RequestedBytes: 2 << 30, CapacityBytes: 1 << 30, Reason: `its class "fast" does not allow expansion`, Refused: true,
	}, {Namespace: "default", Name: "pv-data", Phase: "Bound", Reason: "of another claim"}}
	return f
}

// The explanations of the pod, the volume and the claim all show a refused expansion, and a claim has an explanation
// of its own.
//
// Faults: A152.
func TestClaimsAreExplained(t *testing.T) {
	growing, failing, waiting, static := growthRefused(), growthRefused(), growthRefused(), growthRefused()
	growing.Claims[0].Refused, growing.Claims[0].Call, growing.Claims[0].Reason = false, "ControllerExpandVolume", "ControllerExpandVolume is in flight"
	failing.Claims[0].Refused, failing.Claims[0].Reason = false, ""
	failing.Claims[0].Retry = RetryOf(failed("ControllerExpandVolume", "Unavailable", "array is offline", 4))
	waiting.Claims[0].Refused, waiting.Claims[0].Reason = false, "driver nfs.example.com is not registered"
	waiting.Claims[0].Cause = Cause{Code: state.DriverAway, Of: string(nfs)}
	static.Claims[0] = ClaimStatus{Namespace: "default", Name: "data", Phase: "Bound", Volume: "pv-data", RequestedBytes: 2 << 30, CapacityBytes: 1 << 30}
	for _, tt := range []situation{
		{"growth-refused", "pod", "default/web", Stuck, growthRefused()},
		{"growth-refused-of-volume", "volume", "data", Stuck, growthRefused()},
		{"growth-refused-of-pvc", "pvc", "default/data", Stuck, growthRefused()},
		{"growth-in-flight", "pod", "default/web", Working, growing},
		{"growth-fails-of-pvc", "pvc", "default/data", Stuck, failing},
		{"growth-waits", "pod", "default/web", Waiting, waiting},
		{"larger-than-its-volume", "pod", "default/web", Fine, static},
		{"claim-not-bound-of-pvc", "pvc", "default/data", Stuck, claimNotBound()},
		{"claim-pending-of-pvc", "pvc", "default/dat", Waiting, claimNotBound()},
		{"claim-bound-and-unused-of-pvc", "pvc", "default/data", Fine, claimUnused()},
		{"stage-unavailable-of-pvc", "pvc", "default/data", Stuck, withClaim(stageUnavailable())},
		{"nothing-known-of-pvc", "pvc", "default/web", Unknown, nothingKnown()},
	} {
		t.Run(tt.file, func(t *testing.T) {
			e, err := Explain(tt.facts, tt.kind, tt.name)
			if err != nil {
				t.Fatal(err)
			}
			if e.Verdict != tt.verdict {
				t.Errorf("verdict %q, want %q", e.Verdict, tt.verdict)
			}
			golden(t, filepath.Join("testdata", "explain", tt.file+".txt"), e.String())
		})
	}
}

// withClaim adds the claim of nfsVolume, bound and as large as requested.
func withClaim(f Facts) Facts {
	f.Claims = []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Bound", Volume: "pv-data", Driver: nfs, RequestedBytes: 1, CapacityBytes: 1}}
	return f
}

// A mounted volume waits for nothing, whatever the driver says about its storage. If the kernel reports it broken, a
// person has to act.
//
// Faults: A152.
func TestHealthIsNotAWait(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		want := map[bool]string{false: Fine, true: Stuck}[kernel]
		f := allFine()
		f.Stats = []stats.Status{
			{Key: string(state.SharedID(nfs, "vol-1")), Driver: nfs, Health: stats.Abnormal, Conditions: []stats.Condition{{Status: "DEGRADED", Kernel: kernel}}},
			{Key: "driver " + string(nfs), Driver: nfs, Health: stats.Abnormal, Conditions: []stats.Condition{{Status: "DEGRADED"}}},
		}
		f.Claims = withClaim(f).Claims
		for kind, name := range map[string]string{"pod": "default/web", "volume": "data", "pvc": "default/data"} {
			if e, err := Explain(f, kind, name); err != nil || e.Verdict != want || !strings.Contains(e.String(), "health") {
				t.Errorf("the kernel's word %v: %s, %v; want %s with its health", kernel, e, err, want)
			}
		}
		if e, err := Explain(f, "driver", string(nfs)); err != nil || e.Verdict != Waiting {
			t.Errorf("the driver: %s, %v", e, err)
		}
	}
}
