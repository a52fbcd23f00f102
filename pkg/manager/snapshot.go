package manager

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// snapshot is the published, read-only view of the loop's state. Once a round the loop writes
// what changed. The data that a status points to is immutable, so readers make shallow copies.
type snapshot struct {
	mu      sync.RWMutex                     // guards the fields below
	volumes map[state.VolumeID]*VolumeStatus // overwritten in place; readers copy the values
	// attached holds the results of loop.attachedAs that are not "".
	attached map[state.VolumeID]string
	pods     map[state.PodUID]state.PodWant // as the sources list them
	byPod    volumesBy[state.PodUID]
	drivers  map[state.DriverName]*DriverStatus // overwritten in place, like volumes
	// synced: all sources have listed their pods; looked: all records were compared with the kernel.
	synced, looked bool
	found          Found
	unrecorded     Unrecorded
	left           []state.Place // sorted by path
	strays         strays
	// shown counts the events that the snapshot reflects.
	shown      uint64
	changed    chan struct{} // nil while no reader has asked for it
	podChanged map[state.PodUID]*watch
	feeds      map[*PodFeed]struct{}
}

// watch wakes the callers that wait for one pod.
type watch struct {
	changed chan struct{}
	waiting int
}

func newSnapshot() *snapshot {
	return &snapshot{
		volumes: map[state.VolumeID]*VolumeStatus{}, attached: map[state.VolumeID]string{},
		pods:  map[state.PodUID]state.PodWant{},
		byPod: volumesBy[state.PodUID]{}, drivers: map[state.DriverName]*DriverStatus{},
		podChanged: map[state.PodUID]*watch{}, feeds: map[*PodFeed]struct{}{},
		unrecorded: Unrecorded{Unknown: true},
	}
}

// forPod is the part of a volume's status that a wait for one pod depends on.
type forPod struct{ wanted, mounted, absent bool }

func (s *VolumeStatus) forPod(uid state.PodUID) forPod {
	m, has := s.Volume.Mounts[uid]
	return forPod{
		wanted:  slices.Contains(s.Wanted, uid),
		mounted: s.mounted(m),
		absent:  !has || m.Phase == state.Absent,
	}
}

// concerns reports whether a pod wants the volume, or has or may have it.
func (s *VolumeStatus) concerns(uid state.PodUID) bool {
	_, has := s.Volume.Mounts[uid]
	return has || slices.Contains(s.Wanted, uid)
}

// pods yields the pods that want the volume, or have or may have it.
func (s *VolumeStatus) pods() iter.Seq[state.PodUID] {
	return func(yield func(state.PodUID) bool) {
		for _, uid := range s.Wanted {
			if !yield(uid) {
				return
			}
		}
		for uid := range s.Volume.Mounts {
			if !slices.Contains(s.Wanted, uid) && !yield(uid) {
				return
			}
		}
	}
}

// wake wakes the callers that wait for a pod.
func (snap *snapshot) wake(uid state.PodUID) {
	if w, ok := snap.podChanged[uid]; ok {
		close(w.changed)
		delete(snap.podChanged, uid)
	}
}

// Changed returns a channel that is closed at the next change of anything. Callers take
// it before they read, to learn when what they have read is out of date.
func (m *Manager) Changed() <-chan struct{} {
	m.snapshot.mu.Lock()
	defer m.snapshot.mu.Unlock()
	return m.snapshot.change()
}

// change returns the channel that is closed at the next change; snap.mu is held.
func (snap *snapshot) change() <-chan struct{} {
	if snap.changed == nil {
		snap.changed = make(chan struct{})
	}
	return snap.changed
}

// podWatch is Changed for the state of one pod's volumes. A waiter calls leave when it is done.
func (m *Manager) podWatch(uid state.PodUID) (changed <-chan struct{}, leave func()) {
	snap := m.snapshot
	snap.mu.Lock()
	defer snap.mu.Unlock()
	w, ok := snap.podChanged[uid]
	if !ok {
		w = &watch{changed: make(chan struct{})}
		snap.podChanged[uid] = w
	}
	w.waiting++
	return w.changed, func() {
		snap.mu.Lock()
		defer snap.mu.Unlock()
		if w.waiting--; w.waiting == 0 && snap.podChanged[uid] == w {
			delete(snap.podChanged, uid)
		}
	}
}

// Settle waits until the snapshot reflects the journal and all events that were posted
// before the call. The error is the cause of ctx's end, or ErrEnded.
func (m *Manager) Settle(ctx context.Context) error {
	m.mu.Lock()
	posted := m.posted
	m.mu.Unlock()
	for {
		m.snapshot.mu.Lock()
		if m.snapshot.shown >= posted {
			m.snapshot.mu.Unlock()
			return nil
		}
		changed := m.snapshot.change()
		m.snapshot.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ended:
			return ErrEnded
		}
	}
}

// Volumes returns every volume that is known or wanted, sorted by id.
func (m *Manager) Volumes() []VolumeStatus {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	all := make([]VolumeStatus, 0, len(m.snapshot.volumes))
	for _, id := range slices.Sorted(maps.Keys(m.snapshot.volumes)) { // not the values, of 1 kB each
		all = append(all, *m.snapshot.volumes[id])
	}
	return all
}

// EachVolume yields the volumes that Volumes returns, in no order and without copying them
// all. The loop cannot publish meanwhile, so yield must be quick and must not call m.
func (m *Manager) EachVolume(yield func(VolumeStatus) bool) {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	for _, s := range m.snapshot.volumes {
		if !yield(*s) {
			return
		}
	}
}

// Volume returns one volume, and whether it is known or wanted.
func (m *Manager) Volume(id state.VolumeID) (VolumeStatus, bool) {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	if s, ok := m.snapshot.volumes[id]; ok {
		return *s, true
	}
	return VolumeStatus{Volume: state.Volume{Spec: &state.Spec{}}}, false
}

// volume returns a volume's status, or an empty one if the snapshot has none. It may be used
// only while snap.mu is held.
func (snap *snapshot) volume(id state.VolumeID) *VolumeStatus {
	if s, ok := snap.volumes[id]; ok {
		return s
	}
	return &VolumeStatus{}
}

// Pods returns every pod that is listed or still has volumes, sorted by namespace and name.
func (m *Manager) Pods() []PodStatus {
	snap := m.snapshot
	snap.mu.RLock()
	defer snap.mu.RUnlock()
	uids := set[state.PodUID]{}
	for uid := range snap.pods {
		uids[uid] = struct{}{}
	}
	for uid := range snap.byPod {
		uids[uid] = struct{}{}
	}
	pods := make([]PodStatus, 0, len(uids))
	for uid := range uids {
		p, _ := snap.pod(uid)
		pods = append(pods, p)
	}
	slices.SortFunc(pods, comparePods)
	return pods
}

// KnowsPod reports whether a pod is listed or still has volumes.
func (m *Manager) KnowsPod(uid state.PodUID) bool {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	_, listed := m.snapshot.pods[uid]
	return listed || len(m.snapshot.byPod[uid]) > 0
}

// Pod returns one pod, and whether it is listed or still has volumes.
func (m *Manager) Pod(uid state.PodUID) (PodStatus, bool) {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.pod(uid)
}

// withKept returns w, an unresolved want, with the ID and Spec of the volume that the pod has
// under one of its names, if there is one that is not in wanted; snap.mu is held.
func (snap *snapshot) withKept(uid state.PodUID, w state.VolumeWant, wanted set[state.VolumeID]) state.VolumeWant {
	for _, id := range slices.Sorted(slices.Values(snap.byPod[uid])) {
		v := &snap.volumes[id].Volume
		m, has := v.Mounts[uid]
		if has && !wanted.has(id) && slices.ContainsFunc(m.Names, func(name string) bool {
			return slices.Contains(w.Names, name)
		}) {
			w.ID, w.Spec = id, *v.Spec
			return w
		}
	}
	return w
}

// pod composes a pod's status; snap.mu is held.
func (snap *snapshot) pod(uid state.PodUID) (PodStatus, bool) {
	want, listed := snap.pods[uid]
	s := PodStatus{Pod: want.Pod, Listed: listed, Ready: listed && !want.Stopped}
	wanted := set[state.VolumeID]{}
	if !want.Stopped {
		for _, vw := range want.Volumes {
			if vw.Unresolved() {
				vw = snap.withKept(uid, vw, wanted)
			}
			pv := podVolume(uid, vw, snap.volume(vw.ID))
			wanted[vw.ID] = struct{}{}
			s.Ready = s.Ready && pv.Mounted && !vw.Unresolved()
			s.Volumes = append(s.Volumes, pv)
		}
	}
	for _, id := range slices.Sorted(slices.Values(snap.byPod[uid])) {
		v := snap.volumes[id]
		m, has := v.Volume.Mounts[uid]
		if wanted.has(id) || !has {
			continue
		}
		if !listed {
			s.Pod = m.Pod
		}
		s.Volumes = append(s.Volumes, podVolume(uid, state.VolumeWant{Names: m.Names, ID: id, Spec: *v.Volume.Spec}, v))
	}
	return s, listed || len(s.Volumes) > 0
}
