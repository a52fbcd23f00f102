package manager

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes that come and go leave nothing behind although their mounts would have been renewed in
// months, and those that stay are due at their times.
func TestWakesOfVolumesThatAreGoneAreDropped(t *testing.T) {
	var w wakes
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 100_000 {
		id := state.VolumeID(fmt.Sprint("passing", i))
		w.set(id, now.Add(90*24*time.Hour))
		if i%1000 == 0 {
			w.set(state.VolumeID(fmt.Sprintf("stays%02d", i/1000)), now.Add(time.Duration(i)*time.Second))
		}
		w.set(id, time.Time{})
	}
	if len(w.heap) > 1000 {
		t.Errorf("%d entries for %d volumes", len(w.heap), len(w.at))
	}
	due := w.due(now.Add(24 * time.Hour))
	if len(due) != 87 || !slices.IsSorted(due) || len(w.at) != 13 {
		t.Errorf("due: %v, later: %d", due, len(w.at))
	}
}

// What is due by the wall clock, which may be moved while the loop sleeps, is looked for once a minute. A loop
// with nothing due sleeps on.
func TestTheLoopDoesNotSleepThroughAMovedClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]time.Duration{
		0: time.Hour, -time.Second: 0, time.Second: time.Second, 48 * time.Minute: clockCheck, 90 * 24 * time.Hour: clockCheck,
	} {
		var l loop
		if after != 0 {
			l.wakes.set("a", now.Add(after))
		}
		if got := l.nextWake(now); got != want {
			t.Errorf("due in %v: the loop sleeps %v, want %v", after, got, want)
		}
	}
}
