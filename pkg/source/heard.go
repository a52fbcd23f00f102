package source

import (
	"maps"
	"slices"
	"sync"
)

// Heard knows which providers have not spoken since the start. Any goroutine may call its
// methods.
type Heard struct {
	mu     sync.Mutex
	silent map[string]bool // guarded by mu
}

// NewHeard returns a Heard of providers of which none has spoken.
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
