package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// cutModel is one snapshot, its record, the call in flight, and the true state of the backend.
type cutModel struct {
	Rec    snapshotRecord
	Listed bool
	Up     bool
	Named  bool // a person named it by its handle
	Lists  bool // the driver has LIST_SNAPSHOTS
	Doing  snapshotVerb
	From   state.Phase
	Spec   snapshotSpec

	Exists, Ready bool // at the backend
}

func (m cutModel) snapshot() *Snapshot {
	if !m.Listed {
		return nil
	}
	s := testSnapshot("s", "vol")
	if m.Named {
		s.Claim, s.Volume, s.Handle = Key{}, "", "cut"
	}
	return &s
}

func (m cutModel) facts() snapshotFacts {
	f := snapshotFacts{}
	f.Driver.caps = caps{Snapshot: true, ListSnapshots: m.Lists}
	if !m.Up {
		f.Driver.Problem = "down"
	}
	return f
}

// key is equal for models that have the same future.
func (m cutModel) key(t *testing.T) string {
	m.Rec.Content = clearPause(m.Rec.Content)
	m.Rec.Content.Failed, m.Rec.Looks = nil, 0
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cutRules are the decisions under test; the mutants below replace one each.
type cutRules struct {
	next     func(snapshotRecord, *Snapshot, snapshotFacts, time.Time) (snapshotOp, held)
	begin    func(snapshotRecord, *Snapshot, snapshotOp) snapshotRecord
	complete func(snapshotRecord, snapshotOp, snapshotResult, time.Time) snapshotRecord
}

var now = time.Unix(1e9, 0)

// ends lists the models after every possible end of the call in flight.
func (r cutRules) ends(m cutModel) (after []cutModel) {
	o := snapshotOp{verb: m.Doing, spec: m.Spec, from: m.From}
	for _, e := range endings {
		n := m
		n.Doing = noSnapshotVerb
		res := snapshotResult{unsent: e.unsent}
		if e.code != "" || e.unsent {
			res.err = &state.CallError{Outcome: e.out, Call: o.verb.String(), Code: e.code, Err: errors.New(e.name)}
		}
		if e.effect {
			switch o.verb {
			case createSnapshot:
				n.Exists = true
			case deleteSnapshot:
				n.Exists, n.Ready = false, false
			}
		}
		if res.err == nil && o.verb == listSnapshot && !n.Exists {
			continue // there is no such answer
		}
		if e.reject || res.err == nil && !e.crash && !e.effect {
			continue
		}
		n.Ready = n.Exists && n.Ready
		for _, ready := range []bool{false, true} {
			n := n
			n.Ready = n.Ready || ready && n.Exists
			if !e.crash {
				res.made = madeSnapshot{handle: "cut", ready: n.Ready}
				n.Rec = r.complete(m.Rec, o, res, now)
			}
			n.Rec.Content = clearPause(n.Rec.Content)
			after = append(after, n)
		}
	}
	return after
}

// steps lists the models that follow m, and returns the first broken promise.
func (r cutRules) steps(m cutModel) (after []cutModel, wrong error) {
	if m.Doing != noSnapshotVerb {
		return r.ends(m), nil
	}
	for _, listed := range []bool{true, false} {
		n := m
		n.Listed = listed && !m.Rec.Delete
		after = append(after, n)
	}
	up := m
	up.Up = !m.Up
	after = append(after, up)
	if !m.Listed && !m.Rec.empty() {
		n := m
		n.Rec.Delete = true
		after = append(after, n)
	}
	o, _ := r.next(m.Rec, m.snapshot(), m.facts(), now)
	switch {
	case o.verb == deleteSnapshot && !m.Rec.Delete && m.Rec.Content.Phase != state.Leaving:
		return nil, errors.New("a snapshot is deleted that no person said goes")
	case o.verb.calls() && !m.Up:
		return nil, errors.New("a driver that is down is called")
	case o.verb == createSnapshot && m.Named:
		return nil, errors.New("a snapshot that a person named is made")
	case o.verb == dropSnapshot && m.Exists && !m.Named:
		return nil, errors.New("a snapshot is forgotten that exists")
	}
	if o.verb != noSnapshotVerb {
		n := m
		n.Rec = r.begin(m.Rec, m.snapshot(), o)
		if o.verb.calls() {
			n.Doing, n.From, n.Spec = o.verb, o.from, o.spec
		}
		after = append(after, n)
	}
	return after, nil
}

// settles follows m while everything succeeds, and returns what is wrong with the final state.
func (r cutRules) settles(m cutModel) error {
	m.Up = true
	if m.Named {
		m.Exists, m.Ready = true, true
	}
	// A snapshot that a person named and that was never found is left alone.
	wantGone := m.Rec.Delete && m.Rec.Content.Phase != state.Absent || m.Rec.Content.Phase == state.Leaving
	for range 10 {
		if m.Doing == noSnapshotVerb {
			o, _ := r.next(m.Rec, m.snapshot(), m.facts(), now)
			if o.verb == noSnapshotVerb {
				break
			}
			m.Rec = r.begin(m.Rec, m.snapshot(), o)
			if o.verb.calls() {
				m.Doing, m.From, m.Spec = o.verb, o.from, o.spec
			}
			continue
		}
		m.Exists, m.Ready = m.Doing != deleteSnapshot, m.Doing != deleteSnapshot
		o := snapshotOp{verb: m.Doing, spec: m.Spec, from: m.From}
		m.Rec = r.complete(m.Rec, o, snapshotResult{made: madeSnapshot{handle: "cut", ready: true}}, now)
		m.Rec.Content = clearPause(m.Rec.Content)
		m.Doing = noSnapshotVerb
	}
	switch {
	case wantGone && !m.Listed && (m.Exists || !m.Rec.empty()):
		return fmt.Errorf("one that was to go is there in the end: %+v", m)
	case m.Listed && !(m.Exists && m.Rec.usable()):
		return fmt.Errorf("one that is listed is not there in the end: %+v", m)
	}
	return nil
}

// walk visits every reachable state, and returns the first error.
func (r cutRules) walk(t *testing.T) (visited int, wrong error) {
	var queue []cutModel
	seen := map[string]bool{}
	add := func(list ...cutModel) {
		for _, m := range list {
			if k := m.key(t); !seen[k] {
				seen[k] = true
				queue = append(queue, m)
			}
		}
	}
	for _, named := range []bool{false, true} {
		for _, lists := range []bool{false, true} {
			add(cutModel{Named: named, Lists: lists, Exists: named, Ready: named})
		}
	}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		visited++
		after, err := r.steps(m)
		if err == nil {
			err = r.settles(m)
		}
		if err != nil {
			return visited, err
		}
		add(after...)
	}
	return visited, nil
}

// The test visits every state of a snapshot, in any order of wishes, crashes and answers. Nothing is deleted or
// forgotten that should stay, and the final state is the wished one. Each mutant breaks one rule, and the walk finds
// it.
func TestEveryStateOfASnapshot(t *testing.T) {
	rules := cutRules{nextSnapshot, beginSnapshot, completeSnapshot}
	visited, err := rules.walk(t)
	if err != nil || visited < 100 {
		t.Errorf("%d states: %v", visited, err)
	}
	t.Logf("%d states", visited)
	for name, m := range map[string]func(*cutRules){
		"a lost answer is taken for nothing made": func(r *cutRules) {
			r.complete = func(rec snapshotRecord, o snapshotOp, res snapshotResult, now time.Time) snapshotRecord {
				if res.err != nil && o.verb == createSnapshot {
					rec.Content.Phase = state.Absent
				}
				return completeSnapshot(rec, o, res, now)
			}
		},
		"what is not listed goes": func(r *cutRules) {
			r.next = func(rec snapshotRecord, w *Snapshot, f snapshotFacts, now time.Time) (snapshotOp, held) {
				rec.Delete = rec.Delete || w == nil
				return nextSnapshot(rec, w, f, now)
			}
		},
		"the intent is not noted": func(r *cutRules) {
			r.begin = func(rec snapshotRecord, w *Snapshot, o snapshotOp) snapshotRecord {
				n := beginSnapshot(rec, w, o)
				if o.verb == createSnapshot {
					n.Content.Phase = rec.Content.Phase
				}
				return n
			}
		},
		"a driver that is down is called": func(r *cutRules) {
			r.next = func(rec snapshotRecord, w *Snapshot, f snapshotFacts, now time.Time) (snapshotOp, held) {
				f.Driver.Problem = ""
				return nextSnapshot(rec, w, f, now)
			}
		},
		"ready is not waited for": func(r *cutRules) {
			r.next = func(rec snapshotRecord, w *Snapshot, f snapshotFacts, now time.Time) (snapshotOp, held) {
				rec.Ready = true
				return nextSnapshot(rec, w, f, now)
			}
		},
		"a deletion is forgotten": func(r *cutRules) {
			r.complete = func(rec snapshotRecord, o snapshotOp, res snapshotResult, now time.Time) snapshotRecord {
				if o.verb == deleteSnapshot {
					return snapshotRecord{}
				}
				return completeSnapshot(rec, o, res, now)
			}
		},
	} {
		broken := rules
		m(&broken)
		if _, err := broken.walk(t); err == nil {
			t.Errorf("mutant %q is not found", name)
		}
	}
}
