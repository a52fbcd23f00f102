package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// If a claim is not as wanted, its reason says why.
func TestReasonsForPeople(t *testing.T) {
	now := time.Unix(1e9, 0)
	bound := func() record {
		r := fullRecord()
		r.Growing, r.Attach, r.Delete, r.Volume.Failed = 0, state.Absent, false, nil
		return r
	}
	type given struct {
		r record
		w want
		f facts
	}
	for _, tt := range []struct {
		want   string
		change func(*given)
	}{
		{"delete the claim first", func(g *given) {
			g.r.Volume.Phase, g.r.Handle = state.Entering, ""
			g.w.Claim.Class.Provisioner = "other.example.com"
		}},
		{`StorageClass "fast" not found; to bind a PersistentVolume that exists, name it in the claim's spec.volumeName`, func(g *given) { g.r, g.w.Claim.Class.Provisioner = record{}, "" }},
		{"two claims cannot have the same UID", func(g *given) { g.r, g.f.Namesake = record{}, "default/b" }},
		{"cannot create volumes", func(g *given) { g.r, g.f.Driver.caps.Create = record{}, false }},
		{"cannot delete volumes", func(g *given) { g.r.Delete, g.f.Driver.caps.Create = true, false }},
		{"driver away", func(g *given) { g.r.Delete, g.f.Driver.Problem = true, "driver away" }},
		{"driver away", func(g *given) {
			g.r.Delete, g.r.Volume.Phase, g.f.Driver.Problem = true, state.Entering, "driver away"
		}},
		{"is attached to this node", func(g *given) { g.r.Delete, g.r.Attach = true, state.Leaving }},
		{"in use by pod x", func(g *given) { g.r.Delete, g.f.InUse = true, "pod x" }},
		{"in use by pod x", func(g *given) { g.r.Delete, g.r.Volume.Phase, g.f.InUse = true, state.Leaving, "pod x" }},
		{"being cloned for claim default/b", func(g *given) { g.r.Delete, g.f.Cloning = true, "default/b" }},
		{"a volume cannot shrink", func(g *given) { g.w.Claim.SizeBytes = mib - 1 }},
		{"limit of 1048577 bytes is below", func(g *given) { g.w.Claim.SizeBytes, g.w.Claim.LimitBytes = 2*mib, mib+1 }},
		{"does not allow expansion", func(g *given) { g.w.Claim.SizeBytes, g.w.Claim.Class.AllowExpansion = 2*mib, false }},
		{"has no EXPAND_VOLUME", func(g *given) { g.w.Claim.SizeBytes, g.f.Driver.caps.Expand = 2*mib, false }},
		{"driver away", func(g *given) { g.w.Claim.SizeBytes, g.f.Driver.Problem = 2*mib, "driver away" }},
		{"maximum of calls in flight", func(g *given) { g.w.Claim.SizeBytes, g.f.Driver.Full = 2*mib, true }},
		{"not repeated until", func(g *given) {
			g.w.Claim.SizeBytes, g.r.Expand = 2*mib, state.Retry{Attempts: 1, Final: true, Call: "ControllerExpandVolume", Error: "no"}
		}},
	} {
		g := given{bound(), want{Claim: testClaim("a", mib), Listed: true}, allCaps()}
		tt.change(&g)
		o, h := next(g.r, g.w, g.f, now)
		if o.verb != noVerb || !strings.Contains(h.reason, tt.want) {
			t.Errorf("got %q and op %q, want the reason %q", h.reason, o.verb, tt.want)
		}
		// Waiting for a driver or a slot ends by itself; a refusal does not.
		refused := map[string]bool{
			"a volume cannot shrink": true, "limit of 1048577 bytes is below": true, "does not allow expansion": true,
			"has no EXPAND_VOLUME": true, "not repeated until": true,
		}[tt.want]
		if h.refused != refused {
			t.Errorf("%q: refused: got %v, want %v", h.reason, h.refused, refused)
		}
	}
}

// Sidecars: SP-42.
func TestClonesOnlyWithinADriver(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		d := h.backend.driver()
		d.Name = "other.example.com"
		h.c.DriverUp(d)
		c := testClaim("copy", mib)
		c.Source, c.Class.Provisioner = &DataSource{Claim: testKey("a")}, d.Name
		h.set(c)
		if s := h.status(testKey("copy")); !strings.Contains(s.Reason, "is of driver strict.example.com, not other.example.com") {
			t.Errorf("reason: %q", s.Reason)
		}
	})
}
