package manager

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A failure that lasts for an hour makes one log line per call, and calls become rare: repeated
// messages do not fill a disk.
//
// Faults: A128.
func TestAnHourOfOneFailureIsFewLines(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outcome state.Outcome
		most    int
	}{
		{"failed", state.Failed, 40}, // the pauses double to two minutes
		{"refused", state.Refused, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newFakeNode(t), newDisk()
				var log bytes.Buffer
				l := live(t, h, d, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				l.up(h)
				h.fails(times(1000, "Stage", answer(tt.outcome, "NodeStageVolume", "Internal")))
				synctest.Wait()
				said, calls := log.Len(), len(h.calls())
				l.SetPod(podWant("a", "v"))
				time.Sleep(time.Hour)
				synctest.Wait()
				calls = len(h.calls()) - calls
				lines := strings.Split(strings.TrimSpace(log.String()[said:]), "\n")
				if len(lines) != calls || len(lines) > tt.most || len(lines) < 3 {
					t.Errorf("%d lines about %d calls, want one each and at most %d:\n%s", len(lines), calls, tt.most, strings.Join(lines, "\n"))
				}
				for _, line := range lines {
					if !strings.Contains(line, "level=WARN msg=\"call failed\" volume=d^v driver=d op=Stage") {
						t.Errorf("a line that tells of something else: %s", line)
					}
				}
				_ = l.stop()
			})
		})
	}
}
