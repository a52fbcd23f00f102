// Package keylock is a mutex per name, for example for the target that a goroutine logs
// in to, or for the tree of files that it makes or removes.
//
// Owns: which names are locked. Does not: serve waiters in their order of arrival.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of mutexes by name. The zero value is ready to use. It is safe for
// concurrent use.
type Locks struct {
	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the name is unlocked
}

// Lock waits until it holds the name's lock, or returns the cause of ctx's end.
func (l *Locks) Lock(ctx context.Context, name string) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		other := l.tryLock(name, mine)
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

// Locked reports whether the name is locked.
func (l *Locks) Locked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.locked[name] != nil
}

// tryLock locks the name with mine and returns nil, or returns a channel that closes
// when the current holder unlocks it.
func (l *Locks) tryLock(name string, mine chan struct{}) (other chan struct{}) {
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
