package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// collection is what GOGC and GOMEMLIMIT are now.
func collection() [2]uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(s)
	return [2]uint64{s[0].Value.Uint64(), s[1].Value.Uint64()}
}

// A daemon that starts makes little garbage, and is let be until it has started,
// until that is more than a little, or until it ends.
func TestNothingIsCollectedWhileADaemonStarts(t *testing.T) {
	usual := collection()
	t.Setenv("GOMEMLIMIT", "")
	for what, end := range map[string]func(started chan struct{}, asEver func()){
		"it has started":      func(started chan struct{}, _ func()) { close(started) },
		"there was too much":  func(chan struct{}, func()) { runtime.GC() },
		"it ends":             func(_ chan struct{}, asEver func()) { asEver() },
		"it ends as it began": func(started chan struct{}, asEver func()) { close(started); asEver() },
	} {
		t.Setenv("GOGC", "")
		started := make(chan struct{})
		asEver := collectLate(started)
		if got := collection(); got[0] == usual[0] || got[1] != startMemory {
			t.Errorf("%s: while it starts %d", what, got)
		}
		end(started, asEver)
		for late := time.Now().Add(time.Minute); collection() != usual && time.Now().Before(late); {
			time.Sleep(time.Millisecond)
		}
		if got := collection(); got != usual {
			t.Errorf("%s: %d, want %d", what, got, usual)
		}
		asEver()
		t.Setenv("GOGC", "100")
		asEver = collectLate(started)
		if got := collection(); got != usual {
			t.Errorf("told how to collect: %d, want %d", got, usual)
		}
		asEver()
	}
}
