package manager

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// PodFeed tells one reader which pods changed since he last looked, so that he
// need not list all to find them. Its methods may be called by any goroutine.
type PodFeed struct {
	snap  *snapshot
	wake  chan struct{}              // capacity 1
	dirty set[state.PodUID]          // guarded by snap.mu
	known map[state.PodUID]state.Pod // guarded by snap.mu: those that the reader knows
}

// FollowPods returns a feed of all pods, to which every pod there is counts as
// changed. It is to be closed.
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

// Close ends the feed; it tells no more.
func (f *PodFeed) Close() {
	f.snap.mu.Lock()
	defer f.snap.mu.Unlock()
	delete(f.snap.feeds, f)
	f.dirty = nil
}

// Changed returns a channel that has a value when Take has something to tell, or
// had something that was taken meanwhile.
func (f *PodFeed) Changed() <-chan struct{} { return f.wake }

// Take returns the pods whose status changed, or may have, since it was last
// called, sorted by namespace and name, and those that are listed no longer and
// have no volumes.
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
		f.dirty = set[state.PodUID]{} // not clear: a range of it would cost what it once held
	}
	slices.SortFunc(changed, comparePods)
	slices.SortFunc(gone, func(a, b state.Pod) int { return comparePods(PodStatus{Pod: a}, PodStatus{Pod: b}) })
	return changed, gone
}

// mark notes that a pod changed; snap.mu is held.
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

// mark tells all feeds that pods changed; snap.mu is held.
func (snap *snapshot) mark(uids ...state.PodUID) {
	for f := range snap.feeds {
		for _, uid := range uids {
			f.mark(uid)
		}
	}
}
