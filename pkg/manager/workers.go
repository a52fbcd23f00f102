package manager

// workers runs calls on goroutines that it reuses: a call through gRPC makes a
// goroutine's stack grow several times, which costs as much as the loop's part of the
// call. Without workers 1,000 pods took 3 % more CPU when that was measured alone, and
// more without other optimizations (docs/performance.md).
type workers struct{ next chan func() }

// run runs f on an idle goroutine, or on a new one if none is idle.
func (w *workers) run(f func()) {
	if w.next == nil {
		w.next = make(chan func())
	}
	select {
	case w.next <- f:
	default:
		go work(f, w.next)
	}
}

func work(f func(), next <-chan func()) {
	for more := true; more; f, more = <-next {
		f()
	}
}

// stop ends the idle goroutines now, and each busy one when its work is done.
func (w *workers) stop() {
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}
