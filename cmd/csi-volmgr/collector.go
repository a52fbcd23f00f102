package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// startMemory is how much a daemon that starts may take before there is a
	// collection (bytes): what 1,000 mounted volumes take, and not what 10,000 do.
	startMemory = 80 << 20
	// startPause is for how long after its start it is let be: who waited for it
	// asks now, and what comes then is not to be mounted among what nobody needs.
	startPause = 50 * time.Millisecond
)

// collectLate has no garbage collected while a daemon starts: most of what it makes
// then stays. It is as ever after the first collection, which comes where startMemory
// is taken, and soon after started is closed; and where the environment says how it
// is to be, it is so all the time. asEver ends it at once.
func collectLate(started <-chan struct{}) (asEver func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(startMemory)
	over := make(chan struct{})
	asEver = sync.OnceFunc(func() {
		close(over)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	runtime.AddCleanup(&struct{ next *int }{}, func(end func()) { end() }, asEver)
	go func() {
		select {
		case <-started:
		case <-over:
			return
		}
		select {
		case <-time.After(startPause):
			asEver()
		case <-over:
		}
	}()
	return asEver
}
