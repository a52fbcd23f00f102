package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/keylock"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/payload"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sweeper removes replaced sets of files from volumes after their KeepTime.
type sweeper struct {
	mu sync.Mutex // guards queue and due
	// queue has the volumes to sweep, the next one first; all wait equally long. due
	// has their paths.
	queue []visit
	due   map[string]bool
	locks keylock.Locks // by path, each held by the call that works on that volume
	poke  chan struct{} // capacity 1: the queue is no longer empty
}

// visit is the time to sweep a volume.
type visit struct {
	path string
	at   time.Time
}

func newSweeper() *sweeper {
	return &sweeper{due: map[string]bool{}, poke: make(chan struct{}, 1)}
}

// schedule queues a sweep of the volume at path. If one is scheduled already, that
// sweep finds the sets that are still too young and schedules another.
func (s *sweeper) schedule(path string) {
	s.mu.Lock()
	first := len(s.queue) == 0
	if !s.due[path] {
		s.due[path], s.queue = true, append(s.queue, visit{path, time.Now().Add(payload.KeepTime)})
	}
	s.mu.Unlock()
	if !first {
		return // the loop already waits for an earlier one
	}
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// cancel drops the pending sweep of a removed volume.
func (s *sweeper) cancel(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due[path] {
		delete(s.due, path)
		s.queue = slices.DeleteFunc(s.queue, func(v visit) bool { return v.path == path })
	}
}

// next returns a volume that is due, or how long until one is.
func (s *sweeper) next() (path string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return "", time.Hour // nothing to do
	}
	first := s.queue[0]
	if wait := time.Until(first.at); wait > 0 {
		return "", wait
	}
	s.queue = s.queue[1:]
	delete(s.due, first.path)
	return first.path, 0
}

// Run removes replaced sets of files until ctx ends, beginning with those that a crash
// left. Without Run, the next Publish removes them. It returns ctx's error.
func (d *Driver) Run(ctx context.Context) error {
	kind := filepath.Base(filepath.Dir(d.c.Layout.BuiltinTarget(d.Kind, "pod", "volume")))
	pods, err := os.ReadDir(d.c.Layout.Pods())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.c.Logger.Warn("cannot list earlier versions of files", "err", err)
	}
	for _, pod := range pods {
		volumes, err := os.ReadDir(filepath.Join(d.c.Layout.Pods(), pod.Name(), "volumes", kind))
		if err != nil {
			continue // the pod has no volumes of this kind
		}
		for _, v := range volumes {
			d.sweep(ctx, d.c.Layout.BuiltinTarget(d.Kind, state.PodUID(pod.Name()), v.Name()))
		}
	}
	for {
		path, wait := d.sweeper.next()
		if path != "" {
			d.sweep(ctx, path)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.sweeper.poke:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// sweep removes the old sets of the volume at path, and schedules another sweep if some
// are still too young. After a failure, the next Publish removes them.
func (d *Driver) sweep(ctx context.Context, path string) {
	unlock, err := d.sweeper.locks.Lock(ctx, path)
	if err != nil {
		return
	}
	defer unlock()
	dir, err := poddir.At(d.c.Layout, path)
	if err != nil {
		return
	}
	f, err := dir.Open()
	if err != nil {
		return // removed meanwhile
	}
	defer f.Close()
	left, err := d.writer.Sweep(ctx, f)
	if err != nil && ctx.Err() == nil {
		d.c.Logger.Warn("earlier versions of files stay until the next change", "path", path, "err", err)
	}
	if left > 0 && err == nil {
		d.sweeper.schedule(path)
	}
}
