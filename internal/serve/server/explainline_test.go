package server

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A claim's lines are those of explain, each on a single line whatever a driver says.
func TestTheLinesOfAClaim(t *testing.T) {
	b := &backend{}
	b.facts = Facts{Claims: []ClaimStatus{{Namespace: "default", Name: "data", Phase: "Pending", Reason: "no\nroom", Class: "fast"}}}
	s := &Server{cfg: Config{Volumes: b, Claims: b, Health: b}}
	s.cfg.Now = func() time.Time { return now }
	got := s.ExplainClaim(t.Context(), "default/data")
	if len(got) < 3 || got[0] != "verdict: "+Waiting || !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "no room") }) {
		t.Errorf("%q", got)
	}
	if got := s.ExplainClaim(t.Context(), "default/absent"); len(got) == 0 || !strings.Contains(strings.Join(got, " "), "is known here") {
		t.Errorf("%q", got)
	}
}
