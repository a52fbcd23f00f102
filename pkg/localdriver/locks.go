package localdriver

import (
	"sync"

	"google.golang.org/grpc/codes"
)

// locks keeps calls for the same thing apart: no call waits, the second is
// refused (CSI 1.13, ABORTED: operation pending for volume).
type locks struct {
	mu   sync.Mutex
	held map[string]struct{} // guarded by mu
}

func newLocks() *locks { return &locks{held: map[string]struct{}{}} }

// take holds all the keys, or none and returns the ABORTED to answer with.
func (l *locks) take(keys ...string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, k := range keys {
		if _, busy := l.held[k]; busy {
			l.drop(keys[:i])
			return nil, refuse(codes.Aborted, "another call for %s is in flight", k)
		}
		l.held[k] = struct{}{}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drop(keys)
	}, nil
}

// drop lets keys go. The caller holds l.mu.
func (l *locks) drop(keys []string) {
	for _, k := range keys {
		delete(l.held, k)
	}
}

// What may be held.
func lockVolume(id string) string         { return "volume " + id }
func lockVolumeName(name string) string   { return "the volume name " + name }
func lockSnapshot(id string) string       { return "snapshot " + id }
func lockSnapshotName(name string) string { return "the snapshot name " + name }
func lockGroup(id string) string          { return "group snapshot " + id }
func lockGroupName(name string) string    { return "the group snapshot name " + name }
