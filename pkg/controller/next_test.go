package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// model is one claim, its record, the call in flight, and the truth at the backend.
type model struct {
	rec    record
	listed bool
	size   int64
	node   verb
	up     bool
	inUse  bool
	doing  op

	// The truth.
	exists, attached bool
	bytes            int64
	// given: pods may have been given the volume that exists.
	given bool
	// bad: the driver's last answer said that the volume cannot be used.
	bad bool
}

// ending is how a call can end.
type ending struct {
	name   string
	effect bool // the backend did what was asked
	crash  bool // nobody hears how it ended
	unsent bool
	reject bool
	code   string
	out    state.Outcome
}

var endings = []ending{
	{name: "ok", effect: true},
	{name: "ok, unusable", effect: true, reject: true},
	{name: "refused", code: "InvalidArgument", out: state.Refused},
	{name: "broken, nothing done", code: "Internal", out: state.Failed},
	{name: "broken, done", effect: true, code: "Internal", out: state.Failed},
	{name: "lost, nothing done", code: "DeadlineExceeded", out: state.Uncertain},
	{name: "lost, done", effect: true, code: "DeadlineExceeded", out: state.Uncertain},
	{name: "full", code: "ResourceExhausted", out: state.Uncertain},
	{name: "unimplemented", code: "Unimplemented", out: state.Final},
	{name: "secret not there", unsent: true, out: state.Failed},
	{name: "crash, nothing done", crash: true},
	{name: "crash, done", crash: true, effect: true},
}

// rules are the decisions under test; the mutants below replace one each.
type rules struct {
	refuse   func(record, verb, facts) (bool, string)
	next     func(record, want, facts, time.Time) (op, held)
	begin    func(record, want, op, string) record
	complete func(record, op, result, time.Time) record
}

var trueRules = rules{refuse, next, begin, complete}

func (m model) claim() Claim {
	c := testClaim("a", m.size)
	return c
}

func (m model) want() want {
	w := want{Node: m.node}
	if m.listed {
		w.Claim, w.Listed = m.claim(), true
	}
	return w
}

func (m model) facts(offline bool) facts {
	f := facts{Driver: driverFacts{caps: caps{Controller: true, Create: true, Publish: true, Expand: true, Offline: offline, Online: !offline}}}
	if !m.up {
		f.Driver.Problem = "driver is not registered"
	}
	if m.inUse {
		f.InUse = "a pod"
	}
	return f
}

// key identifies the model; pacing is left out, for time may always pass.
func (m model) key() string {
	m.rec.Volume.Retry, m.rec.Expand = state.Retry{}, state.Retry{}
	m.rec.Rejects = min(m.rec.Rejects, 1)
	return fmt.Sprintf("%+v", m)
}

// wishes are the models to which the world outside can turn m.
func (m model) wishes() (all []model) {
	turn := func(f func(*model)) {
		n := m
		f(&n)
		all = append(all, n)
	}
	turn(func(n *model) { n.listed = !n.listed })
	turn(func(n *model) { n.size = 3 - n.size })
	turn(func(n *model) { n.up = !n.up })
	if m.rec.usable() && m.node == nothing && m.doing.verb != attach && m.doing.verb != detach {
		turn(func(n *model) { n.node = attach })
	}
	if m.rec.Attach != state.Absent && !m.inUse && m.node == nothing && m.doing.verb != attach && m.doing.verb != detach {
		turn(func(n *model) { n.node = detach })
	}
	if m.rec.usable() && m.rec.Attach == state.Present || m.inUse {
		turn(func(n *model) { n.inUse = !n.inUse })
	}
	// Delete is refused where unused refuses it.
	if !m.listed && !m.inUse && m.rec.Attach == state.Absent && !m.rec.empty() {
		turn(func(n *model) { n.rec.Delete = true })
	}
	return all
}

// end is m after its call ended so, and whether a call can.
func (m model) end(e ending, r rules, now time.Time) (model, bool) {
	o := m.doing
	m.doing = op{}
	if e.reject && o.verb != create || e.code == "InvalidArgument" && o.verb == create && m.exists {
		return m, false
	}
	res := result{unsent: e.unsent}
	if e.effect {
		m.effect(o, &res)
	}
	if e.out != state.Done {
		res.err = &state.CallError{Outcome: e.out, Call: o.verb.String(), Code: e.code, Err: errors.New(e.name)}
	}
	if o.verb == attach || o.verb == detach {
		m.node = nothing // the caller has its answer
	}
	if e.crash {
		return m, true
	}
	if e.reject {
		res.created.reject = "unusable"
	}
	if o.verb == create && res.err == nil {
		m.bad = res.created.reject != ""
	}
	m.rec = r.complete(m.rec, o, res, now)
	m.given = m.given || m.rec.usable()
	if !m.exists {
		m.given = false
	}
	return m, true
}

// effect does at the backend what o asks for.
func (m *model) effect(o op, res *result) {
	switch o.verb {
	case create:
		if !m.exists {
			m.exists, m.bytes = true, o.spec.SizeBytes
		}
		res.created = created{handle: "vol", capacityBytes: m.bytes}
		if m.bytes < o.spec.SizeBytes {
			res.created.reject = "too small"
		}
	case remove:
		m.exists, m.bytes, m.bad = false, 0, false
	case grow:
		m.bytes = max(m.bytes, o.bytes)
		res.bytes = m.bytes
	case attach:
		m.attached = true
	case detach:
		m.attached = false
	}
}

// broken says which rule m breaks, if any.
func (m model) broken() string {
	busy := m.doing.verb != nothing
	switch {
	case m.exists && m.rec.empty() && !busy:
		return "a volume exists that no record tells of"
	case m.rec.usable() && !m.exists && m.doing.verb != remove:
		return "a volume is handed out that does not exist"
	case m.rec.usable() && m.bad:
		return "a volume is handed out that cannot be used"
	case m.attached && m.rec.Attach == state.Absent:
		return "a volume is attached, and its record says not"
	case m.rec.Volume.Phase == state.Present && m.rec.CapacityBytes > m.bytes:
		return "a volume's record says more bytes than it has"
	}
	return ""
}

// wrong says which rule is broken by beginning o in m, if any.
func (m model) wrong(o op, offline bool) string {
	switch {
	case o.verb == create && m.rec.Unanswered && fmt.Sprint(o.spec) != fmt.Sprint(m.rec.Spec):
		return "an unanswered CreateVolume is repeated with another request"
	case o.verb == create && !m.listed && !m.rec.Delete:
		return "a volume is made for nobody"
	case o.verb == remove && m.given && !m.rec.Delete:
		return "data is deleted that nobody asked to delete"
	case o.verb == remove && (m.attached || m.inUse && m.rec.Volume.Phase == state.Present):
		return "a volume in use is deleted"
	case o.verb == forget && m.exists:
		return "a volume that exists is forgotten"
	case o.verb == attach && (m.rec.Delete || m.rec.Volume.Phase != state.Present):
		return "a volume that is not there, or not for long, is attached"
	case o.verb == grow && offline && (m.attached || m.inUse):
		return "a volume in use is expanded by a driver that cannot"
	case o.verb == grow && o.bytes < m.rec.CapacityBytes:
		return "a volume is to shrink"
	case o.verb.calls() && !m.up:
		return "a driver that is away is called"
	}
	return ""
}

// step is m after the next step begins, and what that breaks.
func (m model) step(r rules, offline bool, now time.Time) (model, bool, string) {
	m.rec = reset(m.rec)
	if refused, _ := r.refuse(m.rec, m.node, m.facts(offline)); refused {
		m.node = nothing // the caller is told
	}
	w := m.want()
	o, h := r.next(m.rec, w, m.facts(offline), now)
	if o.verb == nothing {
		return m, false, m.idle(h)
	}
	if problem := m.wrong(o, offline); problem != "" {
		return m, false, problem
	}
	m.rec = r.begin(m.rec, w, o, "node-1")
	if o.verb.calls() {
		m.doing = o
	}
	return m, true, ""
}

// idle says what is wrong with doing nothing in m, telling h.
func (m model) idle(h held) string {
	switch {
	case h.reason != "":
		return ""
	case m.rec.Delete, m.listed && m.rec.Volume.Phase != state.Present,
		m.listed && m.rec.CapacityBytes < m.size, m.node != nothing && m.up:
		return "nothing is done, and nobody is told why"
	}
	return ""
}

// walk visits every state that can be reached, and returns how many there are
// and the first broken rule with the way to it.
func walk(r rules, offline bool) (int, string) {
	now := time.Unix(1e9, 0)
	first := model{size: 1, up: true}
	seen := map[string]string{first.key(): ""}
	queue := []model{first}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		path := seen[m.key()]
		fail := func(problem string) string { return fmt.Sprintf("%s\nafter%s\nin %s", problem, path, m.key()) }
		if problem := m.broken(); problem != "" {
			return len(seen), fail(problem)
		}
		visit := func(name string, n model) {
			if _, ok := seen[n.key()]; !ok {
				seen[n.key()] = path + "\n  " + name
				queue = append(queue, n)
			}
		}
		for i, n := range m.wishes() {
			visit(fmt.Sprintf("wish %d: listed %v size %d up %v node %s inUse %v delete %v", i, n.listed, n.size, n.up, n.node, n.inUse, n.rec.Delete), n)
		}
		if m.doing.verb == nothing {
			n, moved, problem := m.step(r, offline, now)
			if problem != "" {
				return len(seen), fail(problem)
			}
			if moved {
				visit("begin "+n.doing.verb.String(), n)
			}
			if problem := m.converges(r, offline, now); problem != "" {
				return len(seen), fail(problem)
			}
			continue
		}
		for _, e := range endings {
			if n, ok := m.end(e, r, now); ok {
				visit(m.doing.verb.String()+" "+e.name, n)
			}
		}
	}
	return len(seen), ""
}

// converges says what is not as wanted after good weather: the driver is up and
// does what it is asked, and the manager has detached what nobody has.
func (m model) converges(r rules, offline bool, now time.Time) string {
	m.up, m.inUse, m.node = true, false, nothing
	for range 20 {
		if m.rec.Attach != state.Absent {
			m.node = detach
		}
		n, moved, problem := m.step(r, offline, now)
		if problem != "" {
			return "in good weather: " + problem
		}
		if !moved {
			break
		}
		m = n
		if m.doing.verb != nothing {
			m, _ = m.end(endings[0], r, now)
		}
	}
	switch {
	case m.rec.Delete:
		return "a deletion does not end"
	case m.listed && m.rec.Volume.Phase != state.Present:
		return "a claim stays without a volume"
	case m.listed && m.rec.CapacityBytes < m.size:
		return "a claim's volume stays too small"
	case m.exists && m.rec.empty():
		return "a volume is left"
	}
	return ""
}

func TestEveryReachableStateKeepsTheRules(t *testing.T) {
	for _, offline := range []bool{false, true} {
		n, problem := walk(trueRules, offline)
		if problem != "" {
			t.Errorf("offline %v: %s", offline, problem)
		}
		t.Logf("offline %v: %d states", offline, n)
		if n < 1000 {
			t.Errorf("only %d states: the walk does not walk", n)
		}
	}
}

// Each mutant drops one rule; the walk has to notice.
func TestTheWalkNoticesABrokenRule(t *testing.T) {
	mutants := map[string]rules{
		"an error makes a volume absent": {refuse, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == create && res.err != nil {
				o.from, res.unsent = state.Absent, true
			}
			return complete(r, o, res, now)
		}},
		"a failed removal is reversed": {refuse, next, begin, func(r record, o op, res result, now time.Time) record {
			out := complete(r, o, res, now)
			if o.verb == remove && res.err != nil {
				out.Volume.Phase = state.Present
			}
			return out
		}},
		"a failed removal counts as done": {refuse, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == remove {
				res.err = nil
			}
			return complete(r, o, res, now)
		}},
		"no intent before create": {refuse, next, func(r record, w want, o op, node string) record {
			if o.verb == create {
				return r
			}
			return begin(r, w, o, node)
		}, complete},
		"no intent before attach": {refuse, next, func(r record, w want, o op, node string) record {
			if o.verb == attach {
				return r
			}
			return begin(r, w, o, node)
		}, complete},
		"a failed detach counts as done": {refuse, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == detach {
				res.err = nil
			}
			return complete(r, o, res, now)
		}},
		"a repeat takes the new wish": {refuse, func(r record, w want, f facts, now time.Time) (op, held) {
			r.Unanswered = false
			return next(r, w, f, now)
		}, begin, complete},
		"use does not hold deletion": {refuse, func(r record, w want, f facts, now time.Time) (op, held) {
			r.Attach, f.InUse = state.Absent, ""
			return next(r, w, f, now)
		}, begin, complete},
		"a removed claim is deleted": {refuse, func(r record, w want, f facts, now time.Time) (op, held) {
			r.Delete = r.Delete || !w.Listed && !r.empty()
			return next(r, w, f, now)
		}, begin, complete},
		"deletion forgets what is in doubt": {refuse, func(r record, w want, f facts, now time.Time) (op, held) {
			if r.Delete && r.Volume.Phase == state.Entering {
				return op{verb: forget}, held{}
			}
			return next(r, w, f, now)
		}, begin, complete},
		"a volume being deleted is attached": {func(record, verb, facts) (bool, string) { return false, "" },
			func(r record, w want, f facts, now time.Time) (op, held) {
				r.Delete = r.Delete && w.Node != attach
				return next(r, w, f, now)
			}, begin, complete},
		"who asks to attach in vain is not told": {func(r record, v verb, f facts) (bool, string) {
			return v != attach && f.Driver.Problem != "", f.Driver.Problem
		}, next, begin, complete},
		"a deletion in flight is forgotten by a crash": {refuse, next, func(r record, w want, o op, node string) record {
			if o.verb == remove {
				return r
			}
			return begin(r, w, o, node)
		}, complete},
		"nothing is told": {refuse, func(r record, w want, f facts, now time.Time) (op, held) {
			o, _ := next(r, w, f, now)
			return o, held{}
		}, begin, complete},
		"an expansion that failed counts as done": {refuse, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == grow {
				res.err, res.bytes = nil, o.bytes
			}
			return complete(r, o, res, now)
		}},
		"never expanded": {refuse, func(r record, w want, f facts, now time.Time) (op, held) {
			o, h := next(r, w, f, now)
			if o.verb == grow {
				return op{}, heldf("no")
			}
			return o, h
		}, begin, complete},
		"an unusable volume is handed out": {refuse, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == create {
				res.created.reject = ""
			}
			return complete(r, o, res, now)
		}},
	}
	for name, r := range mutants {
		t.Run(name, func(t *testing.T) {
			for _, offline := range []bool{false, true} {
				if _, problem := walk(r, offline); problem != "" {
					return
				}
			}
			t.Error("not noticed")
		})
	}
}
