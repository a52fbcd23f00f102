package outage

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Findings are what one part could not read or write, each since it fails. The zero value
// has none. It is safe for concurrent use.
type Findings struct {
	mu     sync.Mutex
	byWhat map[string]Finding // guarded by mu
}

// Note takes in a finding of now, or that there is none any more where its Text is "", and
// reports whether that is new. One whose text changes keeps its time.
func (f *Findings) Note(one Finding, now time.Time) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, had := f.byWhat[one.What]
	if before.Text == one.Text {
		return false
	}
	if one.Text == "" {
		delete(f.byWhat, one.What)
		return true
	}
	one.Since = now
	if had {
		one.Since = before.Since // it fails of something else now
	}
	if f.byWhat == nil {
		f.byWhat = map[string]Finding{}
	}
	f.byWhat[one.What] = one
	return true
}

// List returns the findings, sorted.
func (f *Findings) List() []Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Finding
	for _, what := range slices.Sorted(maps.Keys(f.byWhat)) {
		out = append(out, f.byWhat[what])
	}
	return out
}
