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

// unrecorded are the mounts below the root that have no readable record. An unknown pod may
// use them.
type unrecorded struct {
	// lost: the journal may have lost records. Otherwise it has them all, but some cannot be
	// read.
	lost bool
	// looked: the mount table has been read.
	looked bool
	places map[string]unrecordedPlace // by path
	named  map[kindName][]string      // the pods' paths, by volume
	// changes counts the changes that the snapshot does not show yet.
	changes int
}

// kindName is a volume's name and its built-in kind; kind is "" for a CSI driver's volume.
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

// Unrecorded is what is mounted below the node's root without a record, while the journal
// may have lost records.
type Unrecorded struct {
	// Unknown: the mount table has not been read yet.
	Unknown bool
	// Places are sorted by path.
	Places []state.Place
}

const reasonUnlooked = "the journal may have lost records, and the mount table has not been read yet"

// Unrecorded returns the mounts that a pod whose record the journal lost may be using.
func (m *Manager) Unrecorded() Unrecorded {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.unrecorded
}

// ofVolume returns the places that may belong to a volume: those at its stage path, and those with
// its PersistentVolume's name.
func (u Unrecorded) ofVolume(stagePath, name string) (places []state.Place) {
	for _, p := range u.Places {
		if p.Path == stagePath || !p.Builtin && p.Name == name && name != "" {
			places = append(places, p)
		}
	}
	return places
}

// AcceptUnrecorded records an operator's word that no unknown pod uses the mounts without a
// record. The caller has made that word durable.
func (m *Manager) AcceptUnrecorded() {
	m.post(func(l *loop) {
		if l.unrecorded != nil {
			l.unrecorded, l.left = nil, left{changed: true}
			l.replanAll()
		}
	})
}

// trackUnrecorded starts to track mounts without a record if the journal may have lost records
// or some cannot be read.
func (l *loop) trackUnrecorded(r state.Recovery, unreadable int) {
	if !r.Lost() && unreadable == 0 || l.cfg.Place == nil {
		return
	}
	if r.Lost() {
		l.log.Error("journal may have lost records: mounts without a record count as in use", "err", r.Why)
	}
	l.unrecorded = &unrecorded{
		lost: r.Lost(), changes: 1, places: map[string]unrecordedPlace{}, named: map[kindName][]string{},
	}
}

// updateUnrecorded updates the mounts without a record from the mount table. This daemon
// journals every mount before it is made, but a driver may still be working on a call of an
// earlier daemon.
func (l *loop) updateUnrecorded(mounts map[string]state.Seen) {
	u := l.unrecorded
	if u == nil {
		return
	}
	for path := range u.places {
		if _, mounted := mounts[path]; !mounted {
			u.remove(path)
			l.log.Info("mount without a record is gone", "path", path)
		}
	}
	recorded := l.recordedPaths()
	for path, seen := range mounts {
		if _, known := u.places[path]; known || recorded[path] {
			continue
		}
		if p, is := l.cfg.Place(path); is {
			u.add(unrecordedPlace{p, seen})
			l.log.Warn("mount has no record", "path", path, "pod", p.Pod)
		}
	}
	if !u.looked {
		u.looked = true
		u.changes++
		for _, v := range l.volumes {
			if u.lost {
				l.updateDoubtful(v, mounts)
			}
		}
	}
	if u.changes > 0 && u.lost {
		l.replanAll()
	}
}

// recordedPaths returns the paths at which something is or may be mounted, according to the
// records.
func (l *loop) recordedPaths() map[string]bool {
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

// updateDoubtful updates a record from the mount table, since the journal may have lost its
// newer versions.
func (l *loop) updateDoubtful(v *volume, mounts map[string]state.Seen) {
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

// removeRecorded removes the places that v is now a record of.
func (u *unrecorded) removeRecorded(v *state.Volume) {
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

// doubt returns what may exist of a volume on the host without a record.
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
		return d // pods do not share such a volume
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

// replanAll marks every volume to be planned.
func (l *loop) replanAll() {
	for id := range l.volumes {
		l.dirty.push(id)
	}
}

// publishUnrecorded writes the mounts without a record to the snapshot if they have changed;
// snap.mu is held.
func (l *loop) publishUnrecorded(snap *snapshot) {
	u := l.unrecorded
	switch {
	case u == nil && (snap.unrecorded.Unknown || snap.unrecorded.Places != nil || snap.strays.paths != nil):
		snap.unrecorded, l.unrecordedChanged = Unrecorded{}, true
		snap.setStrays(strays{})
	case u == nil:
	case u.changes > 0:
		u.changes, l.unrecordedChanged = 0, true
		snap.unrecorded = Unrecorded{Unknown: u.lost && !u.looked}
		now := strays{unlooked: !u.looked, paths: map[state.PodUID][]string{}}
		for _, p := range u.places {
			if u.lost {
				snap.unrecorded.Places = append(snap.unrecorded.Places, p.Place)
			}
			if p.Pod != "" {
				now.paths[p.Pod] = append(now.paths[p.Pod], p.Path)
			}
		}
		snap.setStrays(now)
		slices.SortFunc(snap.unrecorded.Places, func(p, q state.Place) int { return cmp.Compare(p.Path, q.Path) })
	}
}

// strays are the mounts of pods that have no readable record.
type strays struct {
	// unlooked: the mount table has not been read yet.
	unlooked bool
	paths    map[state.PodUID][]string // paths
}

// setStrays replaces the strays, and wakes all waiting callers, since a wait for an unmount
// depends on them; snap.mu is held.
func (snap *snapshot) setStrays(now strays) {
	snap.strays = now
	for uid := range snap.podChanged {
		snap.wake(uid)
	}
}

// reason says why mounts of the pod without a record may exist; "" if there are none.
func (s strays) reason(uid state.PodUID) string {
	if s.unlooked {
		return "a record cannot be read, and the mount table has not been read yet"
	}
	if paths := s.paths[uid]; len(paths) > 0 {
		return strings.Join(slices.Sorted(slices.Values(paths)), ", ") + " is mounted without a readable record: " +
			"see csi-volmgr get problems"
	}
	return ""
}
