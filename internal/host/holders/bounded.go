package holders

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// errHung means that the kernel did not answer in time.
var errHung = errors.New("the kernel did not answer in time")

// bounded returns the result of do, which another goroutine calls. If that takes too long, bounded
// abandons it and fails, and so does every call with the same key until do has returned.
func bounded[T any](ctx context.Context, f *Finder, key string, do func() T) (result T, err error) {
	if f.isHung(key) {
		return result, errHung
	}
	results := make(chan T, 1)
	ended := false // guarded by f.mu
	go func() {
		r := do()
		f.mu.Lock()
		ended = true
		delete(f.hung, key)
		f.mu.Unlock()
		results <- r
	}()
	patience := time.NewTimer(cmp.Or(f.Patience, mapsPatience))
	defer patience.Stop()
	select {
	case result = <-results:
		return result, nil
	case <-patience.C:
		err = errHung
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hung == nil {
		f.hung = map[string]bool{}
	}
	if !ended {
		f.hung[key] = true
	}
	return result, err
}

func (f *Finder) isHung(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hung[key]
}
