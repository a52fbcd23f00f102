package plan

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// core holds the functions to explore: those of this package, or mutants of them.
type core struct {
	next     func(state.Want, state.Volume, Facts, time.Time) (Op, Held)
	begin    func(state.Volume, Op, state.Want, Facts) state.Volume
	intent   func(state.Volume, Op, state.Want, Facts) state.Volume
	covers   func(durable, begun state.Volume, op Op) bool
	complete func(state.Volume, Op, Result, time.Time) state.Volume
	adopt    func(state.Volume, bool, map[string]state.Seen) (state.Volume, []Change)
}

func real() core {
	intent := func(v state.Volume, op Op, w state.Want, f Facts) state.Volume {
		return Intent(Begin(v, op, w, f), op, w, f)
	}
	return core{next: Next, begin: Begin, intent: intent, covers: Covers, complete: Complete, adopt: Adopt}
}

// variant is one kind of volume and driver to explore, and says which part of the world
// changes. The product of everything is too large to walk. Wishes and pacing affect each
// other only through a volume's phases, so each is walked in full with a smaller set of
// the other.
type variant struct {
	attach, stage, exclusive bool
	// pacing: failures make the next call wait, and drivers come and go.
	pacing bool
}

func (va variant) String() string {
	return fmt.Sprintf("attach=%v,stage=%v,exclusive=%v,pacing=%v", va.attach, va.stage, va.exclusive, va.pacing)
}

const stagePath = "/stage"

var (
	start  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pods   = []state.PodUID{"a", "b"}
	errAny = errors.New("any")
)

func (va variant) spec(fsType string) state.Spec {
	s := state.Spec{Driver: "d", Handle: "h", Name: "pv", Mode: state.Filesystem, StagePath: stagePath, FSType: fsType}
	if va.exclusive {
		s.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
	}
	return s
}

func mountSpec(pod state.PodUID, readOnly bool) state.MountSpec {
	return state.MountSpec{Pod: state.Pod{UID: pod, Namespace: "n", Name: string(pod)}, Target: "/pods/" + string(pod), ReadOnly: readOnly}
}

// wants returns the wishes, any of which may replace another at any time.
func (va variant) wants() []state.Want {
	want := func(fsType, hold string, size int64, pods ...state.WantMount) state.Want {
		w := state.Want{Spec: new(va.spec(fsType)), Hold: hold, SizeBytes: size, HaveBytes: 1, Pods: map[state.PodUID]state.WantMount{}}
		for _, p := range pods {
			w.Pods[p.Pod.UID] = p
		}
		return w
	}
	pod := func(uid state.PodUID, revision string, readOnly bool) state.WantMount {
		return state.WantMount{MountSpec: mountSpec(uid, readOnly), Revision: revision}
	}
	nobody, one := state.Want{}, want("x", "", 1, pod("a", "1", false))
	if va.pacing {
		return []state.Want{nobody, one, want("x", "", 9, pod("a", "2", false))}
	}
	wants := []state.Want{
		nobody,
		one,
		want("x", "", 1, pod("a", "1", false), pod("b", "1", false)),
		want("y", "", 1, pod("a", "1", false)),
		want("x", "attachment is missing", 1, pod("a", "1", false)),
	}
	if !va.attach { // a difference between mounts does not affect the attachment
		wants = append(wants, want("x", "", 1, pod("a", "1", true)))
	}
	return wants
}

// world is one state of everything: the manager's memory, the journal, the wish, the call
// in flight, and the host.
type world struct {
	mem, dur state.Volume
	want     int
	synced   bool
	keepA    bool // pod a cannot be resolved while it does not want the volume
	up       bool
	inFlight Op

	attached bool
	staged   string // the fsType that was staged; "" if nothing is
	pub      [2]bool
}

func (w *world) published(pod state.PodUID) *bool { return &w.pub[slices.Index(pods, pod)] }

func (w world) facts(va variant) Facts {
	f := Facts{Driver: DriverFacts{Up: w.up, Why: "driver d is not registered", Attach: va.attach, Stage: va.stage, Expand: true}, Synced: w.synced}
	if w.keepA {
		f.Keep = map[state.PodUID]string{"a": "kept"}
	}
	return f
}

// volumeKey is the part of a record that decides what follows.
type volumeKey struct {
	attach, stage, needs, forPods, spec  uint8
	size                                 int64
	attachRetry, stageRetry, expandRetry uint8
	mounts                               [2]mountKey
}

type mountKey struct {
	phase, retry uint8
	readOnly     bool
	used         bool
	revision     string
	waits        bool
}

// worldKey identifies a state; worlds with the same key behave alike.
type worldKey struct {
	mem, dur         volumeKey
	want             int
	synced, keep, up bool
	inFlight         Op
	attached         bool
	staged           string
	pub              [2]bool
}

func bit(b bool, n uint8) uint8 {
	if b {
		return n
	}
	return 0
}

func keyOf(v state.Volume) volumeKey {
	retry := func(r state.Retry) uint8 { return bit(!r.NotBefore.IsZero(), 1) | bit(r.Final, 2) }
	k := volumeKey{
		attach: uint8(v.Attach.Phase), stage: uint8(v.Stage.Phase),
		needs:   bit(v.Needs.Attach, 1) | bit(v.Needs.Stage, 2),
		forPods: bit(slices.Contains(v.For, "a"), 1) | bit(slices.Contains(v.For, "b"), 2),
		spec:    bit(v.Spec.Value().FSType == "x", 1) | bit(v.Spec.Value().FSType == "y", 2), size: v.SizeBytes,
		attachRetry: retry(v.Attach.Retry()), stageRetry: retry(v.Stage.Retry()), expandRetry: retry(v.ExpandFailed.Value()),
	}
	for i, p := range pods {
		if m, ok := v.Mounts[p]; ok {
			k.mounts[i] = mountKey{uint8(m.Phase), retry(m.Retry()), m.ReadOnly, used(v, m), m.Revision, m.Waits}
		}
	}
	return k
}

func (w world) key() worldKey {
	return worldKey{keyOf(w.mem), keyOf(w.dur), w.want, w.synced, w.keepA, w.up, w.inFlight, w.attached, w.staged, w.pub}
}

// explorer visits every world that is reachable from the empty one.
type explorer struct {
	core
	va      variant
	wants   []state.Want
	states  int
	edges   int
	longest int
	rested  map[worldKey]bool // settled already; they do not differ by journal or gates
}

// broken is a rule that a world breaks.
type broken struct {
	rule string
	w    world
}

func (e *broken) Error() string { return fmt.Sprintf("%s\nin %+v", e.rule, e.w) }

func breach(w world, format string, args ...any) {
	panic(&broken{fmt.Sprintf(format, args...), w})
}

// explore returns the first rule that a reachable world breaks; nil if none does.
func explore(c core, va variant) (x *explorer, err error) {
	x = &explorer{core: c, va: va, wants: va.wants(), rested: map[worldKey]bool{}}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(*broken)
			if !ok {
				panic(r)
			}
			err = b
		}
	}()
	blank := state.Volume{ID: "d^h"}
	first := world{mem: blank, dur: blank, up: true}
	defer func() { x.rested = nil }()
	seen := map[worldKey]bool{first.key(): true}
	for queue := []world{first}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		x.states++
		x.check(w)
		for _, n := range x.moves(w) {
			x.edges++
			if k := n.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, n)
			}
		}
	}
	return x, nil
}

// moves returns every world that is one step from w.
func (x *explorer) moves(w world) []world {
	var out []world
	for i := range x.wants { // the wish changes, which resets the pacing
		if i != w.want {
			n := w
			n.want = i
			n.mem = Reset(n.mem)
			if x.wants[i].Pods["a"].Target != "" {
				n.keepA = false
			}
			out = append(out, n)
		}
	}
	n := w
	n.synced = true
	out = append(out, n)
	if _, wanted := x.wants[w.want].Pods["a"]; !wanted && w.synced { // before that it does not matter
		n = w
		n.keepA = !n.keepA
		out = append(out, n)
	}
	if x.va.pacing {
		n = w
		if n.up = !n.up; n.up {
			n.mem = Reset(n.mem)
		}
		out = append(out, n)
		n = w // a pause ends
		n.mem = wake(n.mem)
		out = append(out, n)
	}
	n = w // the journal catches up; a restart starts without pauses
	n.dur = Reset(n.mem)
	out = append(out, n)
	out = append(out, x.crashes(w)...)
	if w.inFlight.Kind == None {
		return append(out, x.begins(w)...)
	}
	return append(out, x.outcomes(w)...)
}

// wake ends the pauses, but not the waits that only an event ends.
func wake(v state.Volume) state.Volume {
	ended := func(r state.Retry) *state.Retry {
		r.NotBefore = time.Time{}
		return r.Kept()
	}
	v.Attach.Failed, v.Stage.Failed, v.ExpandFailed = ended(v.Attach.Retry()), ended(v.Stage.Retry()), ended(v.ExpandFailed.Value())
	for p, m := range v.Mounts {
		m.Failed = ended(m.Retry())
		v.Mounts = withMount(v.Mounts, p, m)
	}
	return v
}

// begins starts the next call, if there is one, and checks that it may be made.
func (x *explorer) begins(w world) []world {
	want, f := x.wants[w.want], w.facts(x.va)
	op, held := x.next(want, w.mem, f, start)
	if held.Waits() != (held.Reason != "") {
		breach(w, "rule 10: a code without a reason, or the other way round: %+v", held)
	}
	if op.Kind == None {
		if !held.Waits() && !asWished(w, want) && want.Hold == "" {
			breach(w, "rule 10: nothing to do and no reason, yet not as wished")
		}
		return nil
	}
	if !w.up {
		breach(w, "%v begun while the driver is away", op)
	}
	begun := x.begin(w.mem, op, want, f)
	x.mayBegin(w, op, begun)
	n := w
	if !x.covers(w.dur, begun, op) {
		n.dur = Reset(x.intent(w.mem, op, want, f))
	}
	n.mem, n.inFlight = begun, op
	return []world{n}
}

// mayBegin checks rules 1, 2 and 5 and that a repeated call repeats its request.
func (x *explorer) mayBegin(w world, op Op, begun state.Volume) {
	want := x.wants[w.want]
	mount, wanted := w.mem.Mounts[op.Pod], len(want.Pods) > 0
	if op.Pod != "" {
		_, wanted = want.Pods[op.Pod]
	}
	fact := mount.Fact
	switch op.Kind {
	case Attach, Detach:
		fact = w.mem.Attach
	case Stage, Unstage:
		fact = w.mem.Stage
	}
	if fact.Phase == state.Leaving && !op.Kind.Removes() {
		breach(w, "rule 2: %v turns back from a removal whose answer was lost", op)
	}
	if fact.Phase == state.Entering && !op.Kind.Removes() && !w.mem.Spec.Equal(begun.Spec) {
		breach(w, "%v repeats a call with another request", op)
	}
	if op.Kind == Publish && mount.Phase == state.Entering && !mount.MountSpec.Equal(begun.Mounts[op.Pod].MountSpec) {
		breach(w, "%v repeats a call with another request", op)
	}
	switch op.Kind {
	case Stage:
		if x.va.attach && !w.attached {
			breach(w, "rule 1: stage before attach")
		}
	case Publish, Republish:
		if x.va.stage && (w.mem.Stage.Phase != state.Present || w.staged == "") || x.va.attach && !w.attached {
			breach(w, "rule 1: %v before stage is present", op)
		}
		if !wanted {
			breach(w, "rule 5: %v, which no pod wants", op)
		}
		if x.va.exclusive && op.Kind == Publish && (w.pub[0] && op.Pod != "a" || w.pub[1] && op.Pod != "b") {
			breach(w, "an exclusive volume is given to a second pod")
		}
	case Unstage, Detach:
		if w.pub != [2]bool{} || op.Kind == Detach && w.staged != "" {
			breach(w, "rule 1: %v while something stands on it", op)
		}
	}
	if op.Kind.Removes() && fact.Phase != state.Leaving {
		x.mayRemove(w, op, fact, wanted)
	}
}

func (x *explorer) mayRemove(w world, op Op, fact state.Fact, wanted bool) {
	switch {
	case wanted && fact.Phase == state.Present && (op.Kind == Unpublish || w.mem.Spec.Equal(x.wants[w.want].Spec)):
		breach(w, "rule 5: %v of what is wanted", op)
	case wanted && w.mem.Spec.Equal(x.wants[w.want].Spec) && w.mem.Mounts[op.Pod].MountSpec.Equal(x.wants[w.want].Pods[op.Pod].MountSpec):
		breach(w, "rule 5: %v of what is wanted", op)
	case !wanted && !w.synced:
		breach(w, "rule 5: %v before every source has spoken", op)
	case !wanted && w.keepA && (op.Pod == "a" || op.Pod == "" && slices.Contains(w.mem.For, "a")):
		breach(w, "rule 5: %v without proof that no container uses it", op)
	}
}

// asWished reports whether the host is as want says.
func asWished(w world, want state.Want) bool {
	if len(want.Pods) == 0 && (w.staged != "" || w.attached) {
		return false
	}
	for i, p := range pods {
		wm, wanted := want.Pods[p]
		if w.pub[i] != wanted || wanted && w.mem.Mounts[p].Revision != wm.Revision {
			return false
		}
	}
	return len(want.Pods) == 0 || w.mem.SizeBytes >= want.SizeBytes
}

// effect returns w after the call in flight had its effect on the host.
func effect(w world) world {
	switch w.inFlight.Kind {
	case Attach:
		w.attached = true
	case Detach:
		w.attached = false
	case Stage:
		w.staged = w.mem.Spec.FSType
	case Unstage:
		w.staged = ""
	case Publish:
		*w.published(w.inFlight.Pod) = true
	case Unpublish:
		*w.published(w.inFlight.Pod) = false
	}
	return w
}

// outcomes returns the worlds in which the call in flight has ended: with success, or with a
// failure of each class, with its effect and without.
func (x *explorer) outcomes(w world) []world {
	done := effect(w)
	done.mem = x.complete(w.mem, w.inFlight, x.answer(w), start)
	done.inFlight = Op{}
	out := []world{done}
	failures := []state.Outcome{state.Uncertain}
	if x.va.pacing { // without pacing all failures are alike
		failures = []state.Outcome{state.Failed, state.Uncertain, state.Final}
	}
	for _, o := range failures {
		for _, n := range []world{w, effect(w)} {
			n.mem = x.complete(w.mem, w.inFlight, Result{Err: &state.CallError{Outcome: o, Call: "c", Err: errAny}}, start)
			if !x.va.pacing {
				n.mem = Reset(n.mem)
			}
			n.inFlight = Op{}
			out = append(out, n)
		}
	}
	return out
}

// answer returns the result of a call that succeeded.
func (x *explorer) answer(w world) Result {
	r := Result{Seen: state.Seen{Exists: true, Mounted: true, Dev: 7}}
	if w.inFlight.Kind == Attach {
		r.PublishContext = map[string]string{"k": "v"}
	}
	return r
}

// crashes returns the worlds after a crash and a restart of the daemon, or a reboot of the
// node: memory is lost, and the call in flight had its effect or not.
func (x *explorer) crashes(w world) []world {
	var out []world
	for _, n := range []world{w, effect(w)} {
		n.inFlight, n.synced, n.keepA = Op{}, false, false
		n.mem, _ = x.adopt(n.dur, true, n.look())
		out = append(out, n)
		n.staged, n.pub = "", [2]bool{} // a reboot removes mounts, not attachments
		n.mem, _ = x.adopt(n.dur, false, nil)
		out = append(out, n)
		if w.inFlight.Kind == None {
			break
		}
	}
	return out
}

// look returns what the kernel shows of the host.
func (w world) look() map[string]state.Seen {
	there := func(b bool) state.Seen {
		if !b {
			return state.Seen{Exists: true}
		}
		return state.Seen{Exists: true, Mounted: true, Dev: 7}
	}
	seen := map[string]state.Seen{stagePath: there(w.staged != "")}
	for _, p := range pods {
		seen["/pods/"+string(p)] = there(*w.published(p))
	}
	return seen
}

// check checks the rules that hold in every world.
func (x *explorer) check(w world) {
	for name, v := range map[string]state.Volume{"memory": w.mem, "journal": w.dur} {
		if w.attached && v.Attach.Phase == state.Absent || w.staged != "" && v.Stage.Phase == state.Absent {
			breach(w, "a leak: attached or staged, and the %s says absent", name)
		}
		if (w.staged != "" || w.pub != [2]bool{}) && !v.InUse() {
			breach(w, "rule 3: in use on the host, and the %s says not", name)
		}
		if w.staged != "" && w.staged != v.Spec.FSType {
			breach(w, "staged by another request than the %s says, so it cannot be repeated", name)
		}
		for _, p := range pods {
			if *w.published(p) && v.Mounts[p].Phase == state.Absent {
				breach(w, "a leak: published to %s, and the %s says absent", p, name)
			}
		}
	}
	if w.mem.Attach.Phase == state.Present && !w.attached || w.mem.Stage.Phase == state.Present && w.staged == "" {
		breach(w, "attached or staged by the record, and not there")
	}
	for p, m := range w.mem.Mounts {
		if m.Phase == state.Present && !*w.published(p) {
			breach(w, "published to %s by the record, and not there", p)
		}
	}
	k := w.key()
	k.dur, k.synced, k.keep, k.up = volumeKey{}, false, false, false
	if !x.rested[k] {
		x.rested[k] = true
		x.longest = max(x.longest, x.settle(w))
	}
}

// settle checks rule 10: if the wish no longer changes, every call is answered and none
// fails, the host becomes as wished in a bounded number of calls.
func (x *explorer) settle(w world) int {
	w = effect(w)
	w.inFlight, w.synced, w.keepA, w.up = Op{}, true, false, true
	w.mem = Reset(w.mem)
	want := x.wants[w.want]
	if want.Hold != "" {
		w.want, want = 0, x.wants[0]
	}
	for calls := range 40 {
		f := w.facts(x.va)
		op, held := x.next(want, w.mem, f, start)
		if op.Kind == None {
			exclusive := x.va.exclusive && len(want.Pods) > 1 && held.Waits() && (w.pub[0] || w.pub[1])
			readOnly := held.Step == Expand
			otherwise := held.Code == OtherForm && !w.mem.Mounts[held.Pod].MountSpec.Equal(want.Pods[held.Pod].MountSpec)
			if !asWished(w, want) && !exclusive && !readOnly {
				breach(w, "rule 10: quiet, and not as wished; held: %+v", held)
			}
			if held.Waits() && !exclusive && !readOnly && !otherwise {
				breach(w, "rule 10: held for no cause: %+v", held)
			}
			return calls
		}
		w.mem, w.inFlight = x.begin(w.mem, op, want, f), op
		w = effect(w)
		w.mem, w.inFlight = x.complete(w.mem, op, x.answer(w), start), Op{}
	}
	breach(w, "rule 10: does not come to rest")
	return 0
}

func variants() []variant {
	if raced || testing.Short() {
		return []variant{{}, {stage: true, pacing: true}}
	}
	return []variant{
		{stage: true},
		{},
		{attach: true, stage: true},
		{attach: true},
		{stage: true, exclusive: true},
		{stage: true, pacing: true},
	}
}

// TestEveryReachableState visits every state of one volume with two pods, with and without
// stage and attach, and checks the rules in each. Calls have every outcome, wishes change at
// any time, and the daemon crashes or the node reboots at every step.
//
// Items: N-63.
func TestEveryReachableState(t *testing.T) {
	all := variants()
	if os.Getenv("EXPLORE") == "full" { // millions of states, minutes
		all = append(all, variant{attach: true, stage: true, pacing: true})
	}
	for _, va := range all {
		t.Run(va.String(), func(t *testing.T) {
			t.Parallel()
			x, err := explore(real(), va)
			if err != nil {
				t.Fatal(err)
			}
			if x.states < 5_000 {
				t.Errorf("only %d states were reached; the walk does not go far enough to prove anything", x.states)
			}
			t.Logf("%d states, %d steps, at rest after at most %d calls", x.states, x.edges, x.longest)
		})
	}
}

// mutants are versions of the core that each break one rule.
func mutants() map[string]func(core) core {
	return map[string]func(core) core{
		"publish although stage is unknown": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				if v.Stage.Phase == state.Entering {
					v.Stage.Phase = state.Present
				}
				return Next(w, v, f, now)
			}
			return c
		},
		"unstage although a mount is unknown": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				v.Mounts = maps.Clone(v.Mounts)
				maps.DeleteFunc(v.Mounts, func(_ state.PodUID, m state.Mount) bool { return m.Phase != state.Present })
				return Next(w, v, f, now)
			}
			return c
		},
		"remove before every source has spoken": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				f.Synced = true
				return Next(w, v, f, now)
			}
			return c
		},
		"remove without proof": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				f.Keep = nil
				return Next(w, v, f, now)
			}
			return c
		},
		"unstage without proof for the pods it was staged for": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				v.For = nil
				return Next(w, v, f, now)
			}
			return c
		},
		"turn back from a removal": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				if v.Stage.Phase == state.Leaving && len(w.Pods) > 0 {
					v.Stage.Phase = state.Entering
				}
				return Next(w, v, f, now)
			}
			return c
		},
		"turn back from an unpublish": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				for p, m := range v.Mounts {
					if _, ok := w.Pods[p]; ok && m.Phase == state.Leaving {
						m.Phase = state.Entering
						v.Mounts = withMount(v.Mounts, p, m)
					}
				}
				return Next(w, v, f, now)
			}
			return c
		},
		"no durable intent": func(c core) core {
			c.covers = func(_, _ state.Volume, _ Op) bool { return true }
			return c
		},
		"intent of another request counts": func(c core) core {
			c.covers = func(d, b state.Volume, op Op) bool {
				d.Spec = b.Spec
				return Covers(d, b, op)
			}
			return c
		},
		"intent written after the call": func(c core) core {
			c.intent = func(v state.Volume, _ Op, _ state.Want, _ Facts) state.Volume { return v }
			return c
		},
		"a failed publish proves absence": func(c core) core {
			c.complete = func(v state.Volume, op Op, r Result, now time.Time) state.Volume {
				v = Complete(v, op, r, now)
				if r.Err != nil && r.Err.Outcome == state.Failed && op.Kind == Publish {
					v.Mounts = maps.Clone(v.Mounts)
					delete(v.Mounts, op.Pod)
				}
				return v
			}
			return c
		},
		"a failed unstage proves absence": func(c core) core {
			c.complete = func(v state.Volume, op Op, r Result, now time.Time) state.Volume {
				v = Complete(v, op, r, now)
				if r.Err != nil && op.Kind == Unstage {
					v.Stage.Phase = state.Absent
				}
				return v
			}
			return c
		},
		"a lost answer counts as success": func(c core) core {
			c.complete = func(v state.Volume, op Op, r Result, now time.Time) state.Volume {
				if r.Err != nil && r.Err.Outcome == state.Uncertain {
					r.Err = nil
				}
				return Complete(v, op, r, now)
			}
			return c
		},
		"a restart believes what was entering": func(c core) core {
			c.adopt = func(v state.Volume, same bool, seen map[string]state.Seen) (state.Volume, []Change) {
				v, ch := Adopt(v, same, seen)
				if v.Stage.Phase == state.Entering {
					v.Stage.Phase = state.Present
				}
				return v, ch
			}
			return c
		},
		"a restart forgets what was entering": func(c core) core {
			c.adopt = func(v state.Volume, same bool, seen map[string]state.Seen) (state.Volume, []Change) {
				v, ch := Adopt(v, same, seen)
				v.Mounts = maps.Clone(v.Mounts)
				maps.DeleteFunc(v.Mounts, func(_ state.PodUID, m state.Mount) bool { return m.Phase == state.Entering })
				return v, ch
			}
			return c
		},
		"a reboot is not noticed": func(c core) core {
			c.adopt = func(v state.Volume, _ bool, seen map[string]state.Seen) (state.Volume, []Change) {
				return Adopt(v, true, seen)
			}
			return c
		},
		"what is staged stays for ever": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				op, held := Next(w, v, f, now)
				if op.Kind == Unstage && v.Stage.Phase != state.Leaving {
					op = Op{}
				}
				return op, held
			}
			return c
		},
		"a volume waits without a reason": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				op, _ := Next(w, v, f, now)
				return op, Held{}
			}
			return c
		},
		"a repeated call follows the new wish": func(c core) core {
			c.begin = func(v state.Volume, op Op, w state.Want, f Facts) state.Volume {
				v = Begin(v, op, w, f)
				if op.Kind == Stage {
					v.Spec = w.Spec
				}
				return v
			}
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				if len(w.Pods) > 0 {
					v.Spec = w.Spec
				}
				return Next(w, v, f, now)
			}
			return c
		},
		"an exclusive volume is shared": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				shared := func(s *state.Spec) *state.Spec {
					spec := s.Value()
					spec.AccessModes = nil
					return &spec
				}
				w.Spec, v.Spec = shared(w.Spec), shared(v.Spec)
				return Next(w, v, f, now)
			}
			return c
		},
		"content is never renewed": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				op, held := Next(w, v, f, now)
				if op.Kind == Republish {
					op = Op{}
				}
				return op, held
			}
			return c
		},
		"calls are made while the driver is away": func(c core) core {
			c.next = func(w state.Want, v state.Volume, f Facts, now time.Time) (Op, Held) {
				f.Driver.Up = true
				return Next(w, v, f, now)
			}
			return c
		},
	}
}

// TestMutantsAreCaught shows that the walk finds each broken rule.
func TestMutantsAreCaught(t *testing.T) {
	if raced {
		return // only a long walk finds some of them
	}
	for name, mutate := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, va := range []variant{ // short walks first
				{stage: true, pacing: true}, {stage: true, exclusive: true}, {attach: true, stage: true}, {stage: true},
			} {
				if _, err := explore(mutate(real()), va); err != nil {
					rule, _, _ := strings.Cut(err.Error(), "\n")
					t.Logf("%v: %s", va, rule)
					return
				}
			}
			t.Error("no reachable state shows the breach")
		})
	}
}
