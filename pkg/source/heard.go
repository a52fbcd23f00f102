package source

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Grace is how long providers may take to speak before a caller that needs them hears that
// they have not, and before what waits for them goes on without: after a start they do so
// in moments, or only when an operator mends what they cannot read.
const Grace = 5 * time.Second

// Heard knows which providers have not spoken since the start. Any goroutine may call its
// methods.
type Heard struct {
	mu     sync.Mutex
	silent map[string]bool // guarded by mu
}

// NewHeard returns a Heard of providers that have not spoken.
func NewHeard(providers []string) *Heard {
	h := &Heard{silent: map[string]bool{}}
	for _, p := range providers {
		h.silent[p] = true
	}
	return h
}

// Spoke notes that a provider has said all that it has.
func (h *Heard) Spoke(provider string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.silent, provider)
}

// Silent returns the providers that have not spoken, sorted.
func (h *Heard) Silent() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.silent))
}
