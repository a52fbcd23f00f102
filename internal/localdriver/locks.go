package localdriver

import (
	"sync"

	"google.golang.org/grpc/codes"
)

// locks prevents concurrent calls for the same object: no call waits, the second is refused (CSI
// 1.13, ABORTED: operation pending for volume).
type locks struct {
	mu   sync.Mutex
	held map[string]struct{} // guarded by mu
}

func newLocks() *locks { return &locks{held: map[string]struct{}{}} }

// tryLock locks all keys. If one is held already, it locks none and returns ABORTED.
func (l *locks) tryLock(keys ...string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, k := range keys {
		if _, busy := l.held[k]; busy {
			l.unlock(keys[:i])
			return nil, refuse(codes.Aborted, "another call for %s is in flight", k)
		}
		l.held[k] = struct{}{}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unlock(keys)
	}, nil
}

// unlock releases keys. The caller holds l.mu.
func (l *locks) unlock(keys []string) {
	for _, k := range keys {
		delete(l.held, k)
	}
}

// The keys of locks.
func lockVolume(id string) string         { return "volume " + id }
func lockVolumeName(name string) string   { return "the volume name " + name }
func lockSnapshot(id string) string       { return "snapshot " + id }
func lockSnapshotName(name string) string { return "the snapshot name " + name }
func lockGroup(id string) string          { return "group snapshot " + id }
func lockGroupName(name string) string    { return "the group snapshot name " + name }
