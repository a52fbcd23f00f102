package drivertest

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Swap exchanges the names a and b as fast as it can until stop is called or the test
// ends. stop returns the number of exchanges.
func Swap(t *testing.T, a, b string) (stop func() int) {
	t.Helper()
	done := make(chan struct{})
	swaps := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("exchange %s and %s: %v", a, b, err)
				return
			}
			swaps++
		}
	})
	stop = sync.OnceValue(func() int {
		close(done)
		wg.Wait()
		return swaps
	})
	t.Cleanup(func() { stop() })
	return stop
}
