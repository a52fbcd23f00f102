// Package keylock is a mutex per name: for the target that a goroutine logs in to,
// for the tree of files that it makes or removes.
//
// Owns: which names are locked. Does not: keep the order of those who wait.
package keylock

import (
	"context"
	"sync"
)

// Locks are a mutex for each name. The zero value is ready; any goroutine may use it.
type Locks struct {
	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the name is unlocked
}

// Lock waits until no other goroutine has the name, or returns the cause of ctx's end.
func (l *Locks) Lock(ctx context.Context, name string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		other := l.lockOr(name, mine)
		if other == nil {
			return func() { l.unlock(name, mine) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Locked reports whether a goroutine has the name now.
func (l *Locks) Locked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locked[name] != nil
}

// lockOr gives the name to mine, or returns what is closed when it may be free.
func (l *Locks) lockOr(name string, mine chan struct{}) (other chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.locked[name]; other != nil {
		return other
	}
	if l.locked == nil {
		l.locked = map[string]chan struct{}{}
	}
	l.locked[name] = mine
	return nil
}

func (l *Locks) unlock(name string, mine chan struct{}) {
	l.mu.Lock()
	delete(l.locked, name)
	l.mu.Unlock()
	close(mine)
}
