package manager

// workers runs calls on goroutines that are used again: a call through gRPC makes
// a goroutine's stack grow several times, which costs as much as the loop's part
// of the call does. Without workers 1,000 pods took 3 % more CPU when that was weighed
// alone, and more with other pieces gone (docs/performance.md).
type workers struct{ next chan func() }

// run has a goroutine run f, one that waits for work if there is one.
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

// stop ends those that wait for work, and the others when theirs has ended.
func (w *workers) stop() {
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}
