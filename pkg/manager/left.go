package manager

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// left is what is mounted below the root without a record because an operator had the record forgotten, in this run
// or in an earlier one. Pods may use it, so its volumes must not be deleted ([Manager.UsedBy]). Nothing else waits for
// it: if a pod wants such a volume, it is mounted as usual, and then has a record.
type left struct {
	// recorded are the paths in the records that were loaded; nil after the first look at the mount table.
	recorded map[string]bool
	places   map[string]state.Place // by path
	changed  bool                   // the snapshot does not show it yet
}

// add notes that something is mounted at the path, if it is a driver's volume.
func (f *left) add(l *loop, path string) {
	if p, is := l.cfg.Place(path); is && !p.Builtin {
		if f.places == nil {
			f.places = map[string]state.Place{}
		}
		f.places[path], f.changed = p, true
	}
}

// remove forgets the path, which is unmounted or has a record now.
func (f *left) remove(path string) {
	if _, there := f.places[path]; there {
		delete(f.places, path)
		f.changed = true
	}
}

// removeRecorded forgets the paths that the record has.
func (f *left) removeRecorded(v *state.Volume) {
	if len(f.places) == 0 {
		return
	}
	if v.Stage.Phase != state.Absent {
		f.remove(v.Spec.StagePath)
	}
	for _, m := range v.Mounts {
		if m.Phase != state.Absent {
			f.remove(m.Target)
		}
	}
}

// updateLeft compares what is left with the mount table. The first table also shows what an earlier run left; a later
// one may be older than a record that is gone since, and says nothing new.
func (l *loop) updateLeft(mounts map[string]state.Seen) {
	for _, path := range slices.Collect(maps.Keys(l.left.places)) {
		if _, mounted := mounts[path]; !mounted {
			l.left.remove(path)
		}
	}
	loaded := l.left.recorded
	if loaded == nil {
		return
	}
	l.left.recorded = nil
	now := l.recordedPaths()
	for path := range mounts {
		if !loaded[path] && !now[path] {
			l.left.add(l, path)
		}
	}
}

// leave notes at which paths a volume stays mounted whose record is dropped. The paths of a record that cannot be read
// are unknown: it may be any that has no record.
func (l *loop) leave(v *volume, mounted []string) {
	if l.cfg.Place == nil {
		return
	}
	if v.quarantined != "" && l.unrecorded != nil {
		mounted = slices.AppendSeq(mounted, maps.Keys(l.unrecorded.places))
	}
	for _, path := range mounted {
		l.left.add(l, path)
	}
}

// publishLeft writes what is left to the snapshot.
func (l *loop) publishLeft(snap *snapshot) {
	if !l.left.changed {
		return
	}
	l.left.changed, l.unrecordedChanged = false, true
	byPath := func(p, q state.Place) int { return cmp.Compare(p.Path, q.Path) }
	snap.left = slices.SortedFunc(maps.Values(l.left.places), byPath)
}
