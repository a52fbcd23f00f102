// Package turn lets one at a time work on a thing of a name: who logs in to a
// target, who makes or removes a tree of files.
//
// Owns: who has which name. Does not: keep the order of those who wait.
package turn

import (
	"context"
	"sync"
)

// Turns are the names that a goroutine works on. The zero value is ready; any
// goroutine may use it.
type Turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the turn is over
}

// Take waits until no other goroutine has the name, or returns the cause of ctx's end.
func (t *Turns) Take(ctx context.Context, name string) (end func(), err error) {
	mine := make(chan struct{})
	for {
		other := t.begin(name, mine)
		if other == nil {
			return func() { t.end(name, mine) }, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Taken reports whether a goroutine has the name now.
func (t *Turns) Taken(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy[name] != nil
}

// begin gives the name to mine, or returns what is closed when it may be free.
func (t *Turns) begin(name string, mine chan struct{}) (other chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.busy[name]; other != nil {
		return other
	}
	if t.busy == nil {
		t.busy = map[string]chan struct{}{}
	}
	t.busy[name] = mine
	return nil
}

func (t *Turns) end(name string, mine chan struct{}) {
	t.mu.Lock()
	delete(t.busy, name)
	t.mu.Unlock()
	close(mine)
}
