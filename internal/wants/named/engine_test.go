package named

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// gc ends no use of an engine that runs: it ends its uses itself. A killed engine does not, nor does the one that gets its
// process id; and an engine of an earlier version's row is not known, so that only the kernel counts.
func TestStaleUsesAreThoseOfEnginesThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		processes := map[int32]string{77: "1000"}
		with := func(c *Config) { c.Started = func(pid int32) string { return processes[pid] } }
		p, _, stop := h.startWith(t, "1", with)
		mount := func(name string, pid int32) {
			t.Helper()
			create(t, p, name, nil)
			for range 2 {
				if _, err := p.For(Asker{FrontEnd: Docker}).Mount(t.Context(), name, "c1", pid); err != nil {
					t.Fatal(err)
				}
			}
		}
		mount("db", 77)
		mount("old", 0)
		ended := func(how Ending) (names string) {
			t.Helper()
			all, err := p.Stale(t.Context(), how)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if s.Ended || how == EndNone {
					names += s.Name + " "
				}
			}
			return names
		}
		explains := func(words string) {
			t.Helper()
			if got := p.Unheld(t.Context(), "db", nil); !strings.Contains(got, words) {
				t.Errorf("explain says %q, want %q", got, words)
			}
		}
		explains("2 uses have had none since 2000-01-01T00:00:00Z")
		explains("about to start")
		time.Sleep(startTime)
		explains("the engine that began it runs")
		if got := ended(EndNone); got != "db old " {
			t.Errorf("listed: %q", got)
		}
		if got := ended(EndSafe); got != "old " {
			t.Errorf("ended uses of %q while the engine runs", got)
		}
		stop()
		p, _, stop = h.startWith(t, "1", with) // the next daemon remembers which process that was
		defer stop()
		time.Sleep(startTime)
		if got := ended(EndSafe); got != "" {
			t.Errorf("after a restart: ended uses of %q", got)
		}
		processes[77] = "2000" // it has ended, and another has its id
		explains("since 2000-01-01T00:04:00Z")
		time.Sleep(time.Hour)
		explains("since 2000-01-01T00:04:00Z")
		explains("csi-volmgr gc --yes ends them")
		if got := p.Unheld(t.Context(), "db", []Holder{{PID: 9}}); got != "" {
			t.Errorf("with a holder: %q", got)
		}
		explains("since 2000-01-01T01:04:00Z")
		if got := ended(EndNone); got != "db " {
			t.Errorf("stale: %q", got)
		}
		if got := ended(EndSafe); got != "db " || p.rows["db"].v.Engines != nil {
			t.Errorf("ended: %q", got)
		}
		if got := p.Unheld(t.Context(), "db", nil); got != "" {
			t.Errorf("without a use: %q", got)
		}
		create(t, p, "running", nil)
		if _, err := p.For(Asker{FrontEnd: Docker}).Mount(t.Context(), "running", "c1", 77); err != nil {
			t.Fatal(err)
		}
		time.Sleep(startTime)
		if got := ended(EndLost); got != "running " {
			t.Errorf("an operator ends lost uses: %q", got)
		}
	})
}
