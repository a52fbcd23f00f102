package controller

import "time"

// waiting is why there is no step for a claim, snapshot or group snapshot, since when, and the
// timer for the next look.
type waiting struct {
	held  held
	since time.Time
	timer *time.Timer
}

// hold records why there is no step.
func (w *waiting) hold(h held) {
	if w.held.reason != h.reason {
		w.since = time.Now()
	}
	w.held = h
}

// lookAgain calls look at the given time. It replaces the earlier timer.
func (w *waiting) lookAgain(at time.Time, look func()) {
	w.stopTimer()
	w.timer = time.AfterFunc(time.Until(at), look)
}

func (w *waiting) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
