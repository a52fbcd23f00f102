package files

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
)

// TestVolumesAreLookedAtInOrder: each volume is due once, after its time; a canceled
// one never is.
func TestVolumesAreLookedAtInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSweeper()
		for _, path := range []string{"a", "b", "gone", "a", "c"} {
			s.schedule(path)
		}
		s.cancel("gone")
		if path, wait := s.next(); path != "" || wait != payload.KeepTime {
			t.Errorf("at once: %q, %v", path, wait)
		}
		time.Sleep(payload.KeepTime) // the bubble's time
		for _, want := range []string{"a", "b", "c", ""} {
			if path, _ := s.next(); path != want {
				t.Errorf("in its time: %q, want %q", path, want)
			}
		}
		if len(s.queue)+len(s.due) != 0 {
			t.Errorf("left are %v, %v", s.queue, s.due)
		}
		s.schedule("a")
		if _, wait := s.next(); wait != payload.KeepTime {
			t.Errorf("once more: in %v", wait)
		}
	})
}
