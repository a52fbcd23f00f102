package outage

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Findings is the set of what one part cannot read or write, each with its start. The zero
// value is empty. It is safe for concurrent use.
type Findings struct {
	mu     sync.Mutex
	byWhat map[string]Finding // guarded by mu
}

// Note records a finding that was made at now, or removes it if its Text is "", and reports
// whether that is a change. A finding whose text changes keeps its start.
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
		one.Since = before.Since // still failing, for another reason
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
