package manager

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// PodFeed tells one reader which pods have changed since its last Take, so that it need
// not list all pods. Its methods may be called by any goroutine.
type PodFeed struct {
	snap  *snapshot
	wake  chan struct{}              // capacity 1
	dirty set[state.PodUID]          // guarded by snap.mu; nil after Close
	known map[state.PodUID]state.Pod // guarded by snap.mu; the pods that the reader knows
}

// FollowPods returns a feed of all pods. At first every existing pod counts as changed. The
// caller must close it.
func (m *Manager) FollowPods() *PodFeed {
	snap := m.snapshot
	f := &PodFeed{
		snap: snap, wake: make(chan struct{}, 1), dirty: set[state.PodUID]{}, known: map[state.PodUID]state.Pod{},
	}
	snap.mu.Lock()
	defer snap.mu.Unlock()
	for uid := range snap.pods {
		f.mark(uid)
	}
	for uid := range snap.byPod {
		f.mark(uid)
	}
	snap.feeds[f] = struct{}{}
	return f
}

// Close ends the feed. After it, Take returns nothing.
func (f *PodFeed) Close() {
	f.snap.mu.Lock()
	defer f.snap.mu.Unlock()
	delete(f.snap.feeds, f)
	f.dirty = nil
}

// Changed returns a channel that receives a value when pods have changed. Another Take may
// already have returned them.
func (f *PodFeed) Changed() <-chan struct{} { return f.wake }

// Take returns the pods whose status has, or may have, changed since the last call,
// and the pods that are no longer listed and have no volumes left. Both are sorted by
// namespace and name.
func (f *PodFeed) Take() (changed []PodStatus, gone []state.Pod) {
	f.snap.mu.Lock()
	defer f.snap.mu.Unlock()
	for uid := range f.dirty {
		if p, ok := f.snap.pod(uid); ok {
			changed = append(changed, p)
			f.known[uid] = p.Pod
		} else if p, ok := f.known[uid]; ok {
			gone = append(gone, p)
			delete(f.known, uid)
		}
	}
	if f.dirty != nil {
		f.dirty = set[state.PodUID]{} // not clear: ranging over a map costs as much as its greatest size
	}
	slices.SortFunc(changed, comparePods)
	slices.SortFunc(gone, func(a, b state.Pod) int { return comparePods(PodStatus{Pod: a}, PodStatus{Pod: b}) })
	return changed, gone
}

// mark marks a pod as changed; snap.mu is held.
func (f *PodFeed) mark(uid state.PodUID) {
	if f.dirty == nil {
		return
	}
	f.dirty[uid] = struct{}{}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// mark marks a pod as changed in all feeds; snap.mu is held.
func (snap *snapshot) mark(uid state.PodUID) {
	for f := range snap.feeds {
		f.mark(uid)
	}
}
