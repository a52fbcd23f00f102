package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// unrecorded are the places below the root at which something is mounted without a
// record that can be read. A pod that is not known may use it.
type unrecorded struct {
	// lost: the journal may have lost records, and not only what stands for a record
	// that cannot be read.
	lost bool
	// looked: the kernel has said what is mounted.
	looked bool
	places map[string]unrecordedPlace // by path
	named  map[kindName][]string      // the pods' paths by the name of a volume that pods share
	// changes are those that the snapshot does not show yet.
	changes int
}

// kindName is a volume's name, and its built-in kind; "" of a driver's.
type kindName struct {
	kind state.DriverName
	name string
}

func nameOf(s *state.Spec) kindName {
	if s.Builtin {
		return kindName{s.Driver, s.Name}
	}
	return kindName{"", s.Name}
}

type unrecordedPlace struct {
	state.Place
	seen state.Seen
}

// Unrecorded is what is mounted below the node's root without a record, while it is not
// known whether the journal lost some.
type Unrecorded struct {
	// Unknown: it is not known yet what is mounted.
	Unknown bool
	// Places are sorted by path.
	Places []state.Place
}

const reasonUnlooked = "the journal may have lost records, and the kernel has not said yet what is mounted"

// Unrecorded returns what may be in use by a pod whose record the journal lost.
func (m *Manager) Unrecorded() Unrecorded {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.unrecorded
}

// of returns those of the places that may be of a volume: at its stage path, or under
// its PersistentVolume's name.
func (u Unrecorded) of(stagePath, name string) (places []state.Place) {
	for _, p := range u.Places {
		if p.Path == stagePath || !p.Builtin && p.Name == name && name != "" {
			places = append(places, p)
		}
	}
	return places
}

// AcceptUnrecorded says that no pod that is not known uses what is mounted without a
// record. The caller has made that durable.
func (m *Manager) AcceptUnrecorded() {
	m.post(func(l *loop) {
		if l.unrecorded != nil {
			l.unrecorded = nil
			l.replanAll()
		}
	})
}

// doubtRecords begins to look for what is mounted without a record, where the journal may
// have lost some or some cannot be read.
func (l *loop) doubtRecords(r state.Recovery, unreadable int) {
	if !r.Lost() && unreadable == 0 || l.cfg.Place == nil {
		return
	}
	if r.Lost() {
		l.log.Error("journal may have lost records: what is mounted without a record counts as in use", "err", r.Why)
	}
	l.unrecorded = &unrecorded{
		lost: r.Lost(), changes: 1, places: map[string]unrecordedPlace{}, named: map[kindName][]string{},
	}
}

// compareUnrecorded takes in what is mounted now. All that is made in this life has
// a record before; a driver may still be busy with what an earlier one asked for.
func (l *loop) compareUnrecorded(mounts map[string]state.Seen) {
	u := l.unrecorded
	if u == nil {
		return
	}
	for path := range u.places {
		if _, mounted := mounts[path]; !mounted {
			u.remove(path)
			l.log.Info("what was mounted without a record is not mounted any more", "path", path)
		}
	}
	recorded := l.recorded()
	for path, seen := range mounts {
		if _, known := u.places[path]; known || recorded[path] {
			continue
		}
		if p, is := l.cfg.Place(path); is {
			u.add(unrecordedPlace{p, seen})
			l.log.Warn("mounted without a record", "path", path, "pod", p.Pod)
		}
	}
	if !u.looked {
		u.looked = true
		u.changes++
		for _, v := range l.volumes {
			if u.lost {
				l.compareDoubtful(v, mounts)
			}
		}
	}
	if u.changes > 0 && u.lost {
		l.replanAll()
	}
}

// recorded are the paths at which something is or may be, by the records.
func (l *loop) recorded() map[string]bool {
	paths := make(map[string]bool, len(l.volumes))
	for _, v := range l.volumes {
		r := v.recordOrEmpty()
		if r.Stage.Phase != state.Absent {
			paths[r.Spec.StagePath] = true
		}
		for _, m := range r.Mounts {
			if m.Phase != state.Absent {
				paths[m.Target] = true
			}
		}
	}
	return paths
}

// compareDoubtful takes over what the mount table shows of a record that is in doubt: it
// is older than what was mounted or unmounted since.
func (l *loop) compareDoubtful(v *volume, mounts map[string]state.Seen) {
	for pod, m := range v.recordOrEmpty().Mounts {
		seen, mounted := mounts[m.Target]
		if mounted == m.Seen.Mounted || m.Phase != state.Entering || v.op().Pod == pod {
			continue
		}
		m.Seen = seen
		now := v.recordOrEmpty()
		now.Mounts = maps.Clone(now.Mounts)
		now.Mounts[pod] = m
		l.setRecord(&now)
	}
}

func (u *unrecorded) add(p unrecordedPlace) {
	u.changes++
	u.places[p.Path] = p
	if p.Pod != "" {
		of := kindName{p.Kind, p.Name}
		u.named[of] = append(u.named[of], p.Path)
	}
}

func (u *unrecorded) remove(path string) {
	p, there := u.places[path]
	if !there {
		return
	}
	u.changes++
	delete(u.places, path)
	of := kindName{p.Kind, p.Name}
	u.named[of] = slices.DeleteFunc(u.named[of], func(other string) bool { return other == path })
	if len(u.named[of]) == 0 {
		delete(u.named, of)
	}
}

// recorded takes in a record.
func (u *unrecorded) recorded(v *state.Volume) {
	if u == nil || len(u.places) == 0 {
		return
	}
	if v.Stage.Phase != state.Absent {
		u.remove(v.Spec.StagePath)
	}
	for _, m := range v.Mounts {
		if m.Phase != state.Absent {
			u.remove(m.Target)
		}
	}
}

// doubt says what may be of a volume on the host without a record of it.
func (l *loop) doubt(v state.Volume, w state.Want) (d plan.Doubt) {
	u := l.unrecorded
	switch {
	case u == nil || !u.lost:
		return d
	case !u.looked:
		d.Why = reasonUnlooked
		return d
	}
	for uid, wm := range w.Pods {
		if p, there := u.places[wm.Target]; there {
			if d.Made == nil {
				d.Made = map[state.PodUID]state.Seen{}
			}
			d.Made[uid] = p.seen
		}
	}
	spec := cmp.Or(v.Spec, w.Spec)
	if spec == nil || spec.Ephemeral || spec.Builtin && spec.StagePath == "" {
		return d // no pod shares it
	}
	if p, there := u.places[spec.StagePath]; there && v.Stage.Phase == state.Absent {
		d.Staged = p.seen
		if !v.Clear() && !v.Needs.Stage {
			d.Why, d.Operator = p.Path+
				" is mounted without a record, since the journal lost some, and the volume was begun without a stage since", true
		}
	}
	for _, path := range slices.Sorted(slices.Values(u.named[nameOf(spec)])) {
		p := u.places[path]
		if _, made := d.Made[p.Pod]; !made {
			d.Why, d.Operator = fmt.Sprintf("%s is mounted without a record, since the journal lost some: pod %s may use the "+
				"volume", path, p.Pod), true
			return d
		}
	}
	return d
}

// replanAll has every volume planned.
func (l *loop) replanAll() {
	for id := range l.volumes {
		l.dirty.push(id)
	}
}

// publishUnrecorded puts in the snapshot what changed; snap.mu is held.
func (l *loop) publishUnrecorded(snap *snapshot) {
	u := l.unrecorded
	switch {
	case u == nil && (snap.unrecorded.Unknown || snap.unrecorded.Places != nil || snap.strays.of != nil):
		snap.unrecorded, l.unrecordedChanged = Unrecorded{}, true
		snap.stray(strays{})
	case u == nil:
	case u.changes > 0:
		u.changes, l.unrecordedChanged = 0, true
		snap.unrecorded = Unrecorded{Unknown: u.lost && !u.looked}
		now := strays{unlooked: !u.looked, of: map[state.PodUID][]string{}}
		for _, p := range u.places {
			if u.lost {
				snap.unrecorded.Places = append(snap.unrecorded.Places, p.Place)
			}
			if p.Pod != "" {
				now.of[p.Pod] = append(now.of[p.Pod], p.Path)
			}
		}
		snap.stray(now)
		slices.SortFunc(snap.unrecorded.Places, func(p, q state.Place) int { return cmp.Compare(p.Path, q.Path) })
	}
}

// strays are what is mounted for pods without a record that can be read.
type strays struct {
	// unlooked: it is not known yet what is.
	unlooked bool
	of       map[state.PodUID][]string // paths
}

// stray takes in what is mounted so, which a wait for an unmount depends on; snap.mu is held.
func (snap *snapshot) stray(now strays) {
	snap.strays = now
	for uid := range snap.podChanged {
		snap.wake(uid)
	}
}

// why says what keeps the pod from being known as unmounted; "" where nothing does.
func (s strays) why(uid state.PodUID) string {
	if s.unlooked {
		return "a record cannot be read, and the kernel has not said yet what is mounted"
	}
	if paths := s.of[uid]; len(paths) > 0 {
		return strings.Join(slices.Sorted(slices.Values(paths)), ", ") + " is mounted without a record that can be read: " +
			"csi-volmgr get problems"
	}
	return ""
}
