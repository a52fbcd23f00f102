package server

import (
	"context"
	"strings"
	"testing"
)

// The server inspects a driver's process only if the driver answered OK without an effect.
//
// Faults: A161.
func TestADriverWhoseMountsStayInItsNamespaceIsExplained(t *testing.T) {
	f := unreached()
	f.Drivers[0].Unreached = ""
	var asked []string
	s := &Server{cfg: config(t, newBackend(f))}
	s.cfg.Unreached = func(_ context.Context, endpoint string) string {
		asked = append(asked, endpoint)
		return "its mount is private"
	}
	e, err := Explain(s.withProcesses(t.Context()), "pod", "default/web")
	if err != nil || len(asked) != 1 || asked[0] != "/run/nfs.sock" || !strings.Contains(e.String(), "its mount is private") || !strings.Contains(e.String(), "Bidirectional") {
		t.Errorf("asked of %q, %v: %s", asked, err, e)
	}
	s.cfg = config(t, newBackend(allFine()))
	s.cfg.Unreached = func(context.Context, string) string { panic("asked of a driver that did as it said") }
	if e, err := Explain(s.withProcesses(t.Context()), "pod", "default/web"); err != nil || e.Verdict != Fine {
		t.Errorf("%v: %s", err, e)
	}
}
