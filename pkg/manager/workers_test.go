package manager

import (
	"testing"
	"testing/synctest"
)

// An idle worker is reused. stop ends all workers, a busy one when its work is done.
func TestWorkersAreUsedAgainAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w workers
		var ran int
		for range 3 {
			w.run(func() { ran++ })
			synctest.Wait()
		}
		hangs := make(chan struct{})
		w.run(func() { <-hangs })
		synctest.Wait()
		select {
		case w.next <- func() {}:
			t.Error("there is a second worker, although never two were needed at a time")
		default:
		}
		w.stop()
		close(hangs)
		w.run(func() { ran++ })
		synctest.Wait()
		w.stop()
		if ran != 4 {
			t.Errorf("%d were run", ran)
		}
	})
}
