package source

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Grace is how long the daemon waits for providers after a start. After it, callers that need a
// silent provider get an error, and work that waited for one goes on without it. A provider that
// has not delivered by then usually cannot read its input until an operator repairs it.
const Grace = 5 * time.Second

// SyncTracker tracks which providers have not delivered all their objects since the start. It is safe for
// concurrent use.
type SyncTracker struct {
	mu     sync.Mutex
	silent map[string]bool // guarded by mu
}

// NewSyncTracker returns a SyncTracker in which no provider has delivered.
func NewSyncTracker(providers []string) *SyncTracker {
	t := &SyncTracker{silent: map[string]bool{}}
	for _, p := range providers {
		t.silent[p] = true
	}
	return t
}

// Spoke notes that a provider has delivered all its objects.
func (t *SyncTracker) Spoke(provider string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.silent, provider)
}

// Silent returns the sorted names of the providers that have not delivered all their objects.
func (t *SyncTracker) Silent() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.silent))
}
