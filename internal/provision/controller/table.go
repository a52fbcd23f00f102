package controller

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"
)

// row is what entries of all kinds have in common; R is the type of their record. Owned by Run.
type row[R any] struct {
	key Key
	rec R
	// unreadable says why the record in the journal cannot be read, or is "". If it is set, nothing
	// is done for the object.
	unreadable string
	// old means that rec was read from the journal with a deletion that was not asked for again since.
	old bool
	// unsaved means that rec has changes that the journal lacks. The next commit writes them.
	unsaved bool
	// held is why there is no step, and since is when held or the call in flight began.
	held  held
	since time.Time
	timer *time.Timer // plans the entry again
}

func newRow[R any](key Key) row[R] { return row[R]{key: key, since: time.Now()} }

// hold records why there is no step.
func (r *row[R]) hold(h held) {
	if r.held.reason != h.reason {
		r.since = time.Now()
	}
	r.held = h
}

func (r *row[R]) stopTimer() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// tableEntry is an entry of a table.
type tableEntry interface {
	stopTimer()
	// gone reports whether the object has no record, is not wanted, and has nothing in flight.
	gone() bool
	// wantedName is the name that a driver would know the object by, or "" if no source lists it.
	wantedName() string
}

// table holds the entries of one kind of object, and which of them to plan. Owned by Run.
type table[E tableEntry] struct {
	entries  map[Key]E
	dirty    map[Key]struct{}
	names    map[string]Key // by the name in the record
	newEntry func(Key) E
}

func newTable[E tableEntry](newEntry func(Key) E) table[E] {
	return table[E]{
		entries: map[Key]E{}, dirty: map[Key]struct{}{}, names: map[string]Key{}, newEntry: newEntry,
	}
}

// entry returns the entry of key and creates it if there is none.
func (t *table[E]) entry(key Key) E {
	e, ok := t.entries[key]
	if !ok {
		e = t.newEntry(key)
		t.entries[key] = e
	}
	return e
}

// touch marks the entry for planning in the next step.
func (t *table[E]) touch(key Key) { t.dirty[key] = struct{}{} }

// takeDirty returns the keys to plan, sorted, and clears them.
func (t *table[E]) takeDirty() []Key {
	keys := slices.SortedFunc(maps.Keys(t.dirty), Key.compare)
	clear(t.dirty)
	return keys
}

// rename updates names after the name in the record of key has changed; "" means no record. It
// plans the entries that wait for the old name.
func (t *table[E]) rename(key Key, old, name string) {
	if name != "" {
		t.names[name] = key
	}
	if old == "" || old == name {
		return
	}
	delete(t.names, old)
	for other, e := range t.entries { // linear, but deletions are rare
		if e.wantedName() == old {
			t.touch(other)
		}
	}
}

// namesake returns another object that has the name that e would get, or "".
func (t *table[E]) namesake(key Key, e E) string {
	if owner, ok := t.names[e.wantedName()]; ok && owner != key {
		return owner.String()
	}
	return ""
}

func (t *table[E]) stopTimers() {
	for _, e := range t.entries {
		e.stopTimer()
	}
}

// planAt plans r, an entry of t, at the given time unless it is planned before.
func planAt[E tableEntry, R any](c *Controller, t *table[E], r *row[R], at time.Time) {
	r.stopTimer()
	r.timer = time.AfterFunc(time.Until(at), func() { c.post(func(context.Context) { t.touch(r.key) }) })
}

// afterStoreWait runs f in Run's goroutine after the pause before a failed commit is retried. To
// release a volume at once would plan the same step again, without a pause and without an end.
func (c *Controller) afterStoreWait(f func(ctx context.Context)) {
	time.AfterFunc(storeWait, func() { c.post(f) })
}

// stepper takes the steps of one kind of object. O is the type of its operations.
type stepper[E tableEntry, R journaled[R], O any] struct {
	table  *table[E]
	bucket bucket[R]
	row    func(E) *row[R]
	// plan returns the next step of an entry, with the record that must be durable before it starts.
	// ok is false if there is no step.
	plan func(e E) (o O, rec R, ok bool)
	// begin starts a step whose record is durable. If err is set, the record is not durable, and
	// begin takes the step back.
	begin func(ctx context.Context, e E, o O, rec R, err error)
	// saved is called for an entry that was unsaved and that the journal now has.
	saved func(e E)
}

// step plans the dirty entries, makes their intents durable in one commit and starts their calls.
// It returns the keys of the entries that were dirty.
func (s stepper[E, R, O]) step(ctx context.Context, c *Controller) []Key {
	type planned struct {
		e   E
		op  O
		rec R
	}
	keys := s.table.takeDirty()
	var todo []planned
	changes := map[Key]R{}
	for _, key := range keys {
		e, ok := s.table.entries[key]
		if !ok {
			continue
		}
		if r := s.row(e); r.unsaved {
			changes[key] = r.rec
		}
		if o, rec, ok := s.plan(e); ok {
			todo = append(todo, planned{e, o, rec})
			changes[key] = rec
		}
	}
	err := s.bucket.commit(ctx, c.cfg, changes)
	for _, p := range todo {
		s.begin(ctx, p.e, p.op, p.rec, err)
	}
	for _, key := range keys { // in order, so that a simulated life runs the same way each time
		if _, written := changes[key]; !written {
			continue
		}
		e := s.table.entries[key]
		r := s.row(e)
		if err != nil {
			planAt(c, s.table, r, time.Now().Add(storeWait))
			continue
		}
		if r.unsaved {
			s.saved(e)
		}
		r.unsaved = false
	}
	return keys
}

// publish updates the public statuses of the objects with the keys and drops those that are gone. It
// signals only real changes, because a listener may call the Controller in response.
func publish[S any, E interface {
	tableEntry
	status() S
	hidden() bool // if it has a record and no status
}](v *view, t *table[E], statuses map[Key]S, keys []Key, dropped func(E),
) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for _, key := range keys {
		e, ok := t.entries[key]
		switch {
		case !ok:
		case e.gone():
			e.stopTimer()
			delete(t.entries, key)
			delete(statuses, key)
			dropped(e)
			changed = true
		case e.hidden():
			_, shown := statuses[key]
			changed = changed || shown
			delete(statuses, key)
		default:
			s := e.status()
			changed = changed || !reflect.DeepEqual(s, statuses[key])
			statuses[key] = s
		}
	}
	v.signal(changed)
}

// list returns the statuses, sorted by namespace and name.
func list[S any](v *view, statuses map[Key]S) []S {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make([]S, 0, len(statuses))
	for _, key := range slices.SortedFunc(maps.Keys(statuses), Key.compare) {
		all = append(all, statuses[key])
	}
	return all
}

// lookUp returns one of the statuses, and whether it exists.
func lookUp[S any](v *view, statuses map[Key]S, key Key) (S, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := statuses[key]
	return s, ok
}
