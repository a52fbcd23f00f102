package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupModel is one group snapshot of two volumes, its record, the operation in flight, and the true state of the
// backend.
type groupModel struct {
	Rec    groupRecord
	Listed bool
	Up     bool
	Each   bool // the driver only makes single snapshots
	Doing  groupVerb
	From   state.Phase

	Exists [2]bool // at the backend
	// Cut counts the operations modulo 3; In has the operation in which each snapshot was made.
	Cut uint8
	In  [2]uint8
}

func testGroup(name string, volumes ...string) Group {
	g := Group{
		Key: testKey(name), UID: "uid-" + name, Freeze: time.Second,
		Class: SnapshotClass{Name: "groups", Driver: "strict.example.com", Parameters: map[string]string{"kind": "cow"}},
	}
	for i, v := range volumes {
		g.Members = append(g.Members, Member{Claim: testKey(string(rune('a' + i))), Volume: v, Mode: state.Filesystem})
	}
	return g
}

func (m groupModel) want() *Group {
	if !m.Listed {
		return nil
	}
	g := testGroup("g", "vol-1", "vol-2")
	return &g
}

func (m groupModel) facts() groupFacts {
	f := groupFacts{}
	f.Driver.caps = caps{Snapshot: m.Each, Group: !m.Each}
	if !m.Up {
		f.Driver.Problem = "down"
	}
	return f
}

// key is equal for models that have the same future.
func (m groupModel) key(t *testing.T) string {
	m.Rec.Content.Failed, m.Rec.Looks = nil, 0
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// groupRules are the decisions under test; the mutants below replace one each.
type groupRules struct {
	next     func(groupRecord, *Group, groupFacts, time.Time) (groupOp, held)
	begin    func(groupRecord, *Group, groupOp) groupRecord
	complete func(groupRecord, groupOp, groupResult, time.Time) groupRecord
}

func (m groupModel) op() groupOp {
	return groupOp{verb: m.Doing, spec: m.Rec.Spec, members: m.Rec.Members, from: m.From}
}

func callFailure(e ending) *state.CallError {
	return &state.CallError{Outcome: e.out, Code: e.code, Err: errors.New(e.name)}
}

// unasked reports whether the operation has no call for a member.
func (m groupModel) unasked(i int) bool {
	switch was := m.Rec.Members[i]; {
	case !m.Each:
		return false
	case m.Doing == createGroup:
		return was.Phase != state.Entering
	case m.Doing == getGroup:
		return was.Ready
	default:
		return was.Phase != state.Leaving
	}
}

// takes updates the backend after a call that makes or deletes member i.
func (m *groupModel) takes(i int, effect bool) {
	switch {
	case !effect || m.Doing == getGroup || m.unasked(i):
	case m.Doing == deleteGroup:
		m.Exists[i] = false
	case !m.Exists[i]:
		m.Exists[i], m.In[i] = true, m.Cut
	}
}

// ends lists the models after every possible end of the operation in flight.
func (r groupRules) ends(m groupModel) (after []groupModel) {
	m.Cut = (m.Cut + 1) % 3
	for _, first := range endings {
		for _, second := range endings {
			if !m.Each && first.name != second.name || first.crash != second.crash || first.unsent != second.unsent {
				continue
			}
			if first.reject || second.reject {
				continue
			}
			for _, ready := range []bool{false, true} {
				n := m
				n.takes(0, first.effect)
				n.takes(1, second.effect)
				n.Doing = noGroupVerb
				if first.crash {
					after = append(after, n)
					continue
				}
				if res, possible := m.result(n.Exists, [2]ending{first, second}, ready); possible {
					n.Rec = r.complete(m.Rec, m.op(), res, now)
					n.Rec.Content = clearPause(n.Rec.Content)
					after = append(after, n)
				}
			}
		}
	}
	return after
}

// result returns what the controller hears, if it is possible: no driver shows a snapshot that does not exist.
func (m groupModel) result(exists [2]bool, ends [2]ending, ready bool) (res groupResult, possible bool) {
	o := m.op()
	if ends[0].unsent {
		return groupResult{unsent: true, err: callFailure(ends[0])}, true
	}
	if !m.Each && ends[0].code != "" {
		return groupResult{err: callFailure(ends[0])}, true
	}
	res.handle = "group"
	for i := range o.members {
		one := memberResult{made: madeSnapshot{handle: fmt.Sprint("cut-", i), ready: ready}}
		switch {
		case m.unasked(i):
			one = memberResult{unasked: true}
		case ends[i].code != "":
			one = memberResult{err: callFailure(ends[i])}
			res.err = one.err
		case o.verb != deleteGroup && !exists[i]:
			return res, false
		}
		res.members = append(res.members, one)
	}
	if !m.Each && o.verb == deleteGroup {
		res.members = nil
	}
	return res, true
}

// steps lists the models that follow m, and returns the first broken promise.
func (r groupRules) steps(m groupModel) (after []groupModel, wrong error) {
	if err := m.wrong(); err != nil {
		return nil, err
	}
	if m.Doing != noGroupVerb {
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
	o, _ := r.next(m.Rec, m.want(), m.facts(), now)
	switch {
	case o.verb == deleteGroup && !m.Rec.Delete && m.Rec.Content.Phase == state.Present:
		return nil, errors.New("a group is deleted that no person said goes")
	case o.call() != "" && !m.Up:
		return nil, errors.New("a driver that is down is called")
	case o.verb == dropGroup && m.Exists != [2]bool{}:
		return nil, errors.New("snapshots are forgotten that exist")
	}
	if o.verb != noGroupVerb {
		after = append(after, r.begins(m, o))
	}
	return after, nil
}

// wrong returns the promise that the record breaks.
func (m groupModel) wrong() error {
	switch p := m.Rec.Content.Phase; {
	case p == state.Present && m.Exists != [2]bool{true, true}:
		return fmt.Errorf("a group is there without its snapshots: %+v", m)
	case p == state.Present && m.Rec.Consistency == Frozen && m.In[0] != m.In[1]:
		return fmt.Errorf("snapshots of two moments are called frozen: %+v", m)
	case p == state.Absent && m.Exists != [2]bool{}:
		return fmt.Errorf("snapshots exist that no record has: %+v", m)
	}
	return nil
}

func (r groupRules) begins(m groupModel, o groupOp) groupModel {
	m.Rec = r.begin(m.Rec, m.want(), o)
	if o.call() != "" {
		m.Doing, m.From = o.verb, o.from
	}
	return m
}

// settles follows m while everything succeeds, and returns what is wrong with the final state.
func (r groupRules) settles(m groupModel) error {
	m.Up = true
	deleted := m.Rec.Delete
	for range 12 {
		if m.Doing == noGroupVerb {
			o, _ := r.next(m.Rec, m.want(), m.facts(), now)
			if o.verb == noGroupVerb {
				break
			}
			m = r.begins(m, o)
			continue
		}
		m.Cut = (m.Cut + 1) % 3
		for i := range m.Rec.Members {
			m.takes(i, true)
		}
		res, _ := m.result(m.Exists, [2]ending{endings[0], endings[0]}, true)
		m.Rec = r.complete(m.Rec, m.op(), res, now)
		m.Doing = noGroupVerb
		m.Rec.Content = clearPause(m.Rec.Content)
	}
	switch {
	case deleted && (m.Exists != [2]bool{} || !m.Rec.empty()):
		return fmt.Errorf("one that was to go is there in the end: %+v", m)
	case m.Listed && !(m.Exists == [2]bool{true, true} && m.Rec.ready()):
		return fmt.Errorf("one that is listed is not there in the end: %+v", m)
	}
	return m.wrong()
}

// walk visits every reachable state, and returns the first error.
func (r groupRules) walk(t *testing.T) (visited int, wrong error) {
	var queue []groupModel
	seen := map[string]bool{}
	add := func(list ...groupModel) {
		for _, m := range list {
			if k := m.key(t); !seen[k] {
				seen[k] = true
				queue = append(queue, m)
			}
		}
	}
	add(groupModel{}, groupModel{Each: true})
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

// The test visits every state of a group snapshot, in any order of wishes, crashes and answers, with a driver that
// makes groups and with one that makes single snapshots. A present group has all of its snapshots, none is lost or
// forgotten, snapshots called frozen are of one moment, and the final state is the wished one. Each mutant breaks one
// rule, and the walk finds it.
func TestEveryStateOfAGroup(t *testing.T) {
	rules := groupRules{nextGroup, beginGroup, completeGroup}
	visited, err := rules.walk(t)
	if err != nil || visited < 500 {
		t.Errorf("%d states: %v", visited, err)
	}
	t.Logf("%d states", visited)
	for name, m := range map[string]func(*groupRules){
		"a lost answer is taken for nothing made": func(r *groupRules) {
			r.complete = func(rec groupRecord, o groupOp, res groupResult, now time.Time) groupRecord {
				n := completeGroup(rec, o, res, now)
				if res.err != nil && o.verb == createGroup && n.Content.Phase == state.Entering {
					n.Content.Phase, n.Members = state.Absent, nil
				}
				return n
			}
		},
		"a part of a group is kept for the whole": func(r *groupRules) {
			r.complete = func(rec groupRecord, o groupOp, res groupResult, now time.Time) groupRecord {
				n := completeGroup(rec, o, res, now)
				if n.Content.Phase == state.Leaving && o.verb == createGroup {
					n.Content.Phase = state.Present
				}
				return n
			}
		},
		"a repetition counts as frozen": func(r *groupRules) {
			r.complete = func(rec groupRecord, o groupOp, res groupResult, now time.Time) groupRecord {
				n := completeGroup(rec, o, res, now)
				if n.Consistency == Apart {
					n.Consistency = Frozen
				}
				return n
			}
		},
		"what is not listed goes": func(r *groupRules) {
			r.next = func(rec groupRecord, w *Group, f groupFacts, now time.Time) (groupOp, held) {
				if o, h := nextGroup(rec, w, f, now); w != nil || rec.Content.Phase != state.Present {
					return o, h
				}
				return nextDeleteGroup(rec, f, now)
			}
		},
		"the intent is not noted": func(r *groupRules) {
			r.begin = func(rec groupRecord, w *Group, o groupOp) groupRecord {
				n := beginGroup(rec, w, o)
				if o.verb == createGroup {
					n.Content.Phase = rec.Content.Phase
				}
				return n
			}
		},
		"a driver that is down is called": func(r *groupRules) {
			r.next = func(rec groupRecord, w *Group, f groupFacts, now time.Time) (groupOp, held) {
				f.Driver.Problem = ""
				return nextGroup(rec, w, f, now)
			}
		},
		"ready is not waited for": func(r *groupRules) {
			r.next = func(rec groupRecord, w *Group, f groupFacts, now time.Time) (groupOp, held) {
				if o, h := nextGroup(rec, w, f, now); o.verb != getGroup {
					return o, h
				}
				return groupOp{}, held{}
			}
		},
		"a deletion that failed for one is taken for done": func(r *groupRules) {
			r.complete = func(rec groupRecord, o groupOp, res groupResult, now time.Time) groupRecord {
				if o.verb == deleteGroup && res.members != nil {
					return groupRecord{}
				}
				return completeGroup(rec, o, res, now)
			}
		},
		"what was made of a group that failed is forgotten": func(r *groupRules) {
			r.next = func(rec groupRecord, w *Group, f groupFacts, now time.Time) (groupOp, held) {
				if rec.Content.Phase == state.Leaving && !rec.Delete {
					return groupOp{verb: dropGroup}, held{}
				}
				return nextGroup(rec, w, f, now)
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
