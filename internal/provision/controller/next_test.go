package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// model is one claim, its record, the call in flight, and the true state of the backend.
type model struct {
	rec    record
	listed bool
	size   int64
	node   verb
	up     bool
	inUse  bool
	doing  op

	// The backend.
	exists, attached bool
	bytes            int64
	// given: pods may have received the existing volume.
	given bool
	// bad: the driver's last answer said that the volume cannot be used.
	bad bool
}

// ending is how a call can end.
type ending struct {
	name   string
	effect bool // the backend did what was asked
	crash  bool // the process dies before it records the end
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

var trueRules = rules{attachRefused, next, begin, complete}

func (m model) claim() Claim {
	c := testClaim("a", m.size)
	return c
}

func (m model) want() want {
	w := want{Attach: m.node}
	if m.listed {
		w.Claim, w.Listed = m.claim(), true
	}
	return w
}

func (m model) facts(offline bool) facts {
	f := facts{Driver: driverFacts{caps: caps{Controller: true, Create: true, Expand: true, Offline: offline, Online: !offline}}}
	if !m.up {
		f.Driver.Problem = "driver is not registered"
	}
	if m.inUse {
		f.InUse = "a pod"
	}
	return f
}

// id identifies a model among the others; it leaves out pacing, since time may always pass.
type id struct {
	phase, attach                     state.Phase
	named, unanswered, delete         bool
	asked, requested, capacity, grows int64

	listed, up, inUse bool
	size              int64
	node              verb
	doing             verb
	spec, bytes       int64
	from              state.Phase

	exists, attached, given, bad bool
	real                         int64
}

func (m model) id() id {
	r, o := m.rec, m.doing
	return id{
		r.Volume.Phase, r.Attach, !r.empty(), r.Unanswered, r.Delete,
		r.Spec.SizeBytes, r.RequestedBytes, r.CapacityBytes, r.Growing,
		m.listed, m.up, m.inUse, m.size, m.node, o.verb, o.spec.SizeBytes, o.bytes, o.from,
		m.exists, m.attached, m.given, m.bad, m.bytes,
	}
}

// wishes visits the models that the outside world can turn m into.
func (m model) wishes(visit func(string, model)) {
	turn := func(name string, f func(*model)) {
		n := m
		f(&n)
		visit(name, n)
	}
	turn("listed or not", func(n *model) { n.listed = !n.listed })
	turn("other size", func(n *model) { n.size = 3 - n.size })
	turn("driver up or down", func(n *model) { n.up = !n.up })
	idle := m.node == noVerb && m.doing.verb != attachVolume && m.doing.verb != detachVolume
	if m.rec.usable() && idle {
		turn("attach asked for", func(n *model) { n.node = attachVolume })
	}
	if m.rec.exists() && !m.inUse && idle {
		turn("detach asked for", func(n *model) { n.node = detachVolume })
	}
	if m.given && m.rec.Volume.Phase == state.Present || m.inUse { // also during its deletion: a use may end late
		turn("in use or not", func(n *model) { n.inUse = !n.inUse })
	}
	// The controller refuses Delete under the same condition.
	if !m.listed && !m.inUse && m.rec.Attach == state.Absent && !m.rec.empty() {
		turn("delete", func(n *model) { n.rec.Delete = true })
	}
}

// end returns m after its call has ended with e, and whether that is possible.
func (m model) end(e ending, r rules, now time.Time) (model, bool) {
	o := m.doing
	m.doing = op{}
	if e.reject && o.verb != createVolume || e.code == "InvalidArgument" && o.verb == createVolume && m.exists {
		return m, false
	}
	res := result{unsent: e.unsent}
	if e.effect {
		m.effect(o, &res)
	}
	if e.out != state.Done {
		res.err = &state.CallError{Outcome: e.out, Call: o.verb.String(), Code: e.code, Err: errors.New(e.name)}
	}
	if o.verb == attachVolume || o.verb == detachVolume {
		m.node = noVerb // the caller got its answer
	}
	if e.crash {
		return m, true
	}
	if e.reject {
		res.created.reject = "unusable"
	}
	if o.verb == createVolume && res.err == nil {
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
	case createVolume:
		if !m.exists {
			m.exists, m.bytes = true, o.spec.SizeBytes
		}
		res.created = created{handle: "vol", capacityBytes: m.bytes}
		if m.bytes < o.spec.SizeBytes {
			res.created.reject = "too small"
		}
	case deleteVolume:
		m.exists, m.bytes, m.bad = false, 0, false
	case expandVolume:
		m.bytes = max(m.bytes, o.bytes)
		res.bytes = m.bytes
	case attachVolume:
		m.attached = true
	case detachVolume:
		m.attached = false
	}
}

// broken returns the rule that m breaks, or "".
func (m model) broken() string {
	busy := m.doing.verb != noVerb
	switch {
	case m.exists && m.rec.empty() && !busy:
		return "a volume exists that no record tells of"
	case m.rec.usable() && !m.exists && m.doing.verb != deleteVolume:
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

// wrong returns the rule that m breaks if it begins o, or "".
func (m model) wrong(o op, offline bool) string {
	switch {
	case o.verb == createVolume && m.rec.Unanswered && fmt.Sprint(o.spec) != fmt.Sprint(m.rec.Spec):
		return "an unanswered CreateVolume is repeated with another request"
	case o.verb == createVolume && !m.listed && !m.rec.Delete:
		return "a volume is made without a claim"
	case o.verb == deleteVolume && !m.rec.Delete:
		return "data is deleted without an operator's order"
	case o.verb == deleteVolume && (m.attached || m.inUse && m.rec.Volume.Phase == state.Present):
		return "a volume in use is deleted"
	case o.verb == dropClaim && m.exists:
		return "a volume that exists is forgotten"
	case o.verb == attachVolume && (m.rec.Delete || m.rec.Volume.Phase != state.Present):
		return "a volume that is not there, or not for long, is attached"
	case o.verb == expandVolume && offline && (m.attached || m.inUse):
		return "a volume in use is expanded by a driver that cannot"
	case o.verb == expandVolume && o.bytes < m.rec.CapacityBytes:
		return "a volume is to shrink"
	case o.verb.calls() && !m.up:
		return "a driver that is away is called"
	}
	return ""
}

// step returns m after its next step has begun, and the rule that this breaks.
func (m model) step(r rules, offline bool, now time.Time) (model, bool, string) {
	m.rec = clearPauses(m.rec)
	if refused, _ := r.refuse(m.rec, m.node, m.facts(offline)); refused {
		m.node = noVerb // the caller gets a refusal
	}
	w := m.want()
	o, h := r.next(m.rec, w, m.facts(offline), now)
	if o.verb == noVerb {
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

// idle returns what is wrong with doing nothing in m, given h.
func (m model) idle(h held) string {
	switch {
	case h.reason != "":
		return ""
	case m.rec.Delete, m.listed && m.rec.Volume.Phase != state.Present,
		m.listed && m.rec.CapacityBytes < m.size, m.node != noVerb && m.up:
		return "nothing is done, and no reason is given"
	}
	return ""
}

// from is how the walk first reached a state.
type from struct {
	id   id
	name string
}

// walk visits every reachable state, and returns their number and the first broken rule with the way to it.
func walk(r rules, offline bool) (int, string) {
	now := time.Unix(1e9, 0)
	first := model{size: 1, up: true}
	seen := map[id]from{first.id(): {}}
	for queue := []model{first}; len(queue) > 0; queue = queue[1:] {
		m := queue[0]
		visit := func(name string, n model) {
			if _, ok := seen[n.id()]; !ok {
				seen[n.id()] = from{m.id(), name}
				queue = append(queue, n)
			}
		}
		if problem := m.explore(r, offline, now, visit); problem != "" {
			return len(seen), fmt.Sprintf("%s\nafter%s\nin %+v", problem, way(seen, m.id()), m.id())
		}
	}
	return len(seen), ""
}

// explore visits the successors of m, and returns the rule that one of them breaks.
func (m model) explore(r rules, offline bool, now time.Time, visit func(string, model)) string {
	if problem := m.broken(); problem != "" {
		return problem
	}
	m.wishes(visit)
	if m.doing.verb != noVerb {
		for _, e := range endings {
			if n, ok := m.end(e, r, now); ok {
				visit(m.doing.verb.String()+": "+e.name, n)
			}
		}
		return ""
	}
	n, moved, problem := m.step(r, offline, now)
	if problem != "" {
		return problem
	}
	if moved {
		visit("begin "+n.doing.verb.String(), n)
	}
	return m.converges(r, offline, now)
}

func way(seen map[id]from, to id) string {
	f := seen[to]
	if f.name == "" {
		return ""
	}
	return way(seen, f.id) + "\n  " + f.name
}

// converges returns what is not as wanted after good weather: the driver is up and obeys, and the manager has
// detached each volume that no pod has.
func (m model) converges(r rules, offline bool, now time.Time) string {
	m.up, m.inUse, m.node = true, false, noVerb
	for range 20 {
		if m.rec.Attach != state.Absent {
			m.node = detachVolume
		}
		n, moved, problem := m.step(r, offline, now)
		if problem != "" {
			return "in good weather: " + problem
		}
		if !moved {
			break
		}
		m = n
		if m.doing.verb != noVerb {
			m, _ = m.end(endings[0], r, now)
		}
	}
	switch {
	case m.rec.Delete:
		return "a deletion does not end"
	case m.bad: // only a person can end that
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

// Each mutant drops one rule; the walk must notice.
func TestTheWalkNoticesABrokenRule(t *testing.T) {
	mutants := map[string]rules{
		"an error makes a volume absent": {attachRefused, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == createVolume && res.err != nil {
				o.from, res.unsent = state.Absent, true
			}
			return complete(r, o, res, now)
		}},
		"a failed removal is reversed": {attachRefused, next, begin, func(r record, o op, res result, now time.Time) record {
			out := complete(r, o, res, now)
			if o.verb == deleteVolume && res.err != nil {
				out.Volume.Phase = state.Present
			}
			return out
		}},
		"a failed removal counts as done": {attachRefused, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == deleteVolume {
				res.err = nil
			}
			return complete(r, o, res, now)
		}},
		"no intent before create": {attachRefused, next, func(r record, w want, o op, node string) record {
			if o.verb == createVolume {
				return r
			}
			return begin(r, w, o, node)
		}, complete},
		"no intent before attach": {attachRefused, next, func(r record, w want, o op, node string) record {
			if o.verb == attachVolume {
				return r
			}
			return begin(r, w, o, node)
		}, complete},
		"a failed detach counts as done": {attachRefused, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == detachVolume {
				res.err = nil
			}
			return complete(r, o, res, now)
		}},
		"a repeat takes the new wish": {attachRefused, func(r record, w want, f facts, now time.Time) (op, held) {
			r.Unanswered = false
			return next(r, w, f, now)
		}, begin, complete},
		"use does not hold deletion": {attachRefused, func(r record, w want, f facts, now time.Time) (op, held) {
			r.Attach, f.InUse = state.Absent, ""
			return next(r, w, f, now)
		}, begin, complete},
		"a removed claim is deleted": {attachRefused, func(r record, w want, f facts, now time.Time) (op, held) {
			r.Delete = r.Delete || !w.Listed && !r.empty()
			return next(r, w, f, now)
		}, begin, complete},
		"deletion forgets what is in doubt": {attachRefused, func(r record, w want, f facts, now time.Time) (op, held) {
			if r.Delete && r.Volume.Phase == state.Entering {
				return op{verb: dropClaim}, held{}
			}
			return next(r, w, f, now)
		}, begin, complete},
		"a volume being deleted is attached": {
			func(record, verb, facts) (bool, string) { return false, "" },
			func(r record, w want, f facts, now time.Time) (op, held) {
				r.Delete = r.Delete && w.Attach != attachVolume
				return next(r, w, f, now)
			}, begin, complete,
		},
		"who asks to attach in vain is not told": {func(r record, v verb, f facts) (bool, string) {
			return v != attachVolume && f.Driver.Problem != "", f.Driver.Problem
		}, next, begin, complete},
		"a deletion in flight is forgotten by a crash": {attachRefused, next, func(r record, w want, o op, node string) record {
			if o.verb == deleteVolume {
				return r
			}
			return begin(r, w, o, node)
		}, complete},
		"nothing is told": {attachRefused, func(r record, w want, f facts, now time.Time) (op, held) {
			o, _ := next(r, w, f, now)
			return o, held{}
		}, begin, complete},
		"an expansion that failed counts as done": {attachRefused, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == expandVolume {
				res.err, res.bytes = nil, o.bytes
			}
			return complete(r, o, res, now)
		}},
		"never expanded": {attachRefused, func(r record, w want, f facts, now time.Time) (op, held) {
			o, h := next(r, w, f, now)
			if o.verb == expandVolume {
				return op{}, heldf("no")
			}
			return o, h
		}, begin, complete},
		"an unusable volume is handed out": {attachRefused, next, begin, func(r record, o op, res result, now time.Time) record {
			if o.verb == createVolume {
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
