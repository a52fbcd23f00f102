package controller

import "time"

// waiting is why nothing is done for a row of a claim, a snapshot or a group snapshot, since when,
// and when it is looked at again.
type waiting struct {
	held  held
	since time.Time
	timer *time.Timer
}

// hold notes why nothing is done.
func (w *waiting) hold(h held) {
	if w.held.reason != h.reason {
		w.since = time.Now()
	}
	w.held = h
}

// lookAgain has look called at the given time, and not at an earlier one.
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
