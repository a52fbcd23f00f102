package plan

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func callError(o state.Outcome) *state.CallError {
	return &state.CallError{Outcome: o, Call: "NodeStageVolume", Code: "Internal", Err: errors.New("boom")}
}

// Items: C32, N-28, N-29, N-30, N-58, N-71.
func TestPausesDoubleUpToTheirLimit(t *testing.T) {
	for _, tc := range []struct {
		outcome     state.Outcome
		first, most time.Duration
	}{
		{state.Failed, 500 * time.Millisecond, 2 * time.Minute},
		{state.Uncertain, 500 * time.Millisecond, 2 * time.Minute},
		{state.Refused, 30 * time.Second, 10 * time.Minute},
	} {
		var r state.Retry
		want := tc.first
		for attempt := 1; attempt <= 40; attempt++ {
			now := start.Add(time.Duration(attempt) * time.Hour)
			r = backoff(r, "d^h", Op{Kind: Stage}, callError(tc.outcome), now)
			if got := r.NotBefore.Sub(now); got < want || got > want+want/10 {
				t.Fatalf("%v, attempt %d: pause %v, want %v to a tenth more", tc.outcome, attempt, got, want)
			}
			if r.Attempts != attempt || !r.Since.Equal(start.Add(time.Hour)) || r.Call != "NodeStageVolume" || r.Code != "Internal" || r.Error != "boom" || r.Final {
				t.Fatalf("%v, attempt %d: %+v", tc.outcome, attempt, r)
			}
			want = min(2*want, tc.most)
		}
	}
}

// A driver that answers Aborted only says that an earlier call is still running. The error before
// it is kept until the driver answers something else.
// Faults: A077.
func TestWhatFailedBeforeAbortedIsKept(t *testing.T) {
	answer := func(code, text string) *state.CallError {
		return &state.CallError{Outcome: state.Uncertain, Call: "NodeStageVolume", Code: code, Err: errors.New(text)}
	}
	var r state.Retry
	for i, tc := range []struct{ code, text, first string }{
		{"Aborted", "pending", ""},
		{"DeadlineExceeded", "no answer", ""},
		{"Aborted", "pending", "DeadlineExceeded: no answer"},
		{"Aborted", "still pending", "DeadlineExceeded: no answer"},
		{"", "answered OK without the effect", ""},
		{"Aborted", "pending", "answered OK without the effect"},
		{"Internal", "boom", ""},
	} {
		r = backoff(r, "d^h", Op{Kind: Stage}, answer(tc.code, tc.text), start.Add(time.Duration(i)*time.Minute))
		if r.First != tc.first || r.Code != tc.code || r.Attempts != i+1 || !r.Since.Equal(start) {
			t.Errorf("after %s %s: %+v, want first %q", tc.code, tc.text, r, tc.first)
		}
	}
}

func TestPausesOfDifferentVolumesDiffer(t *testing.T) {
	pauses := map[time.Time]bool{}
	for _, id := range []state.VolumeID{"d^1", "d^2", "d^3", "d^4", "d^5", "d^6"} {
		pauses[backoff(state.Retry{}, id, Op{Kind: Stage}, callError(state.Failed), start).NotBefore] = true
	}
	if len(pauses) < 3 {
		t.Errorf("six volumes that fail at one moment come back at %d moments", len(pauses))
	}
}

func TestResetEndsEveryPauseAndKeepsWhatFailed(t *testing.T) {
	failed := backoff(state.Retry{}, "d^h", Op{Kind: Stage}, callError(state.Final), start)
	v := state.Volume{
		Attach: state.Fact{Phase: state.Entering, Failed: &failed}, Stage: state.Fact{Phase: state.Entering, Failed: &failed}, ExpandFailed: &failed,
		Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering, Failed: &failed}}, "b": {}},
	}
	r := Reset(v)
	if !r.ExpandFailed.Final || RetryExpand(v).ExpandFailed.Final {
		t.Errorf("an expansion that failed for good: %+v", r.ExpandFailed)
	}
	tooLarge, inUse := failed, failed
	tooLarge.Call, tooLarge.Code = "NodeExpandVolume", "OutOfRange"
	inUse.Call, inUse.Code = "NodeExpandVolume", "FailedPrecondition"
	if v := (state.Volume{ExpandFailed: &tooLarge}); RetryExpandOnNewDriver(v).ExpandFailed.Final {
		t.Error("another process of the driver is not asked")
	}
	if v := (state.Volume{ExpandFailed: &inUse}); !RetryExpandOnNewDriver(v).ExpandFailed.Final || RetryExpand(v).ExpandFailed.Final {
		t.Error("another process of the driver is asked for what the use of the volume forbids, or a person is not heard")
	}
	for name, got := range map[string]state.Retry{"attach": r.Attach.Retry(), "stage": r.Stage.Retry(), "mount": r.Mounts["a"].Retry()} {
		if got.Final || !got.NotBefore.IsZero() || got.Attempts != 1 || got.Error != "boom" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if !v.Mounts["a"].Retry().Final {
		t.Error("Reset changed its argument")
	}
}

// Sidecars: SA-02, SA-15.
func TestAttachFailuresArePaced(t *testing.T) {
	v := Complete(Begin(state.Volume{ID: "d^h"}, Op{Kind: Attach}, variant{attach: true}.wants()[1], Facts{Driver: DriverFacts{Up: true, Attach: true}}),
		Op{Kind: Attach}, Result{Err: callError(state.Failed)}, start)
	if v.Attach.Phase != state.Entering || v.Attach.Retry().Attempts != 1 {
		t.Errorf("%+v", v.Attach)
	}
}

func TestAdoptSaysWhatIsWrong(t *testing.T) {
	mounted := state.Seen{Exists: true, Mounted: true, Dev: 7}
	v := state.Volume{
		Spec: &state.Spec{StagePath: stagePath}, Stage: state.Fact{Phase: state.Present}, Staged: mounted,
		Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Present}, MountSpec: mountSpec("a", false), Seen: mounted}},
	}
	for name, tc := range map[string]struct {
		was, now state.Seen
		unknown  bool
		want     string
	}{
		"still there":                        {was: mounted, now: mounted},
		"unmounted":                          {was: mounted, now: state.Seen{Exists: true}, want: "it is no longer mounted"},
		"a plain directory vanished":         {was: state.Seen{Exists: true}, now: state.Seen{}, want: "it no longer exists"},
		"another device":                     {was: mounted, now: state.Seen{Exists: true, Mounted: true, Dev: 8}, want: "another device is mounted there"},
		"a device that cannot be told":       {was: mounted, now: state.Seen{Exists: true, Mounted: true}},
		"could not be looked at":             {was: mounted, unknown: true},
		"the driver mounts nothing at stage": {was: state.Seen{Exists: true}, now: state.Seen{Exists: true}},
	} {
		t.Run(name, func(t *testing.T) {
			v := v
			v.Staged = tc.was
			seen := map[string]state.Seen{"/pods/a": mounted}
			if !tc.unknown {
				seen[stagePath] = tc.now
			}
			got, changes := Adopt(v, true, seen)
			if tc.want == "" {
				if len(changes) != 0 || got.Stage.Phase != state.Present {
					t.Errorf("changes %+v, stage %v", changes, got.Stage.Phase)
				}
				return
			}
			if len(changes) != 1 || changes[0].Why != tc.want || changes[0].Path != stagePath || got.Stage.Phase != state.Entering {
				t.Errorf("changes %+v, stage %v; want %q", changes, got.Stage.Phase, tc.want)
			}
		})
	}
	got, changes := Adopt(v, false, nil)
	if len(changes) != 2 || got.Stage.Phase != state.Entering || got.Mounts["a"].Phase != state.Entering {
		t.Errorf("after a reboot: %+v", got)
	}
	if v.Mounts["a"].Phase != state.Present {
		t.Error("Adopt changed its argument")
	}
}

// TestProofThatContainersAreGone goes through every combination of PodFacts.
// Items: A33.
func TestProofThatContainersAreGone(t *testing.T) {
	for _, listed := range []bool{false, true} {
		for _, stopped := range []bool{false, true} {
			for _, unresolved := range []string{"", "claim n/c: lookup failed"} {
				for _, living := range []string{"", "container c runs"} {
					p := PodFacts{Listed: listed, Stopped: stopped, Unresolved: unresolved, Living: living}
					proven := (!listed || stopped) && living == ""
					if got := Keep(p); (got == "") != proven {
						t.Errorf("Keep(%+v) = %q, want proven: %v", p, got, proven)
					}
				}
			}
		}
	}
}

func TestRemovalHasReservedSlots(t *testing.T) {
	l := Limits{Node: 10, Driver: 6, Reserved: 2}
	for _, tc := range []struct {
		name         string
		node, driver Running
		kind         Kind
		want         bool
	}{
		{"idle", Running{}, Running{}, Stage, true},
		{"driver full of making", Running{Calls: 4, Making: 4}, Running{Calls: 4, Making: 4}, Publish, false},
		{"removal takes a reserved slot", Running{Calls: 4, Making: 4}, Running{Calls: 4, Making: 4}, Unpublish, true},
		{"driver full", Running{Calls: 6, Making: 4}, Running{Calls: 6, Making: 4}, Unstage, false},
		{"node full of making", Running{Calls: 8, Making: 8}, Running{}, Stage, false},
		{"removal takes the node's reserve", Running{Calls: 8, Making: 8}, Running{}, Detach, true},
		{"node full", Running{Calls: 10, Making: 8}, Running{}, Unpublish, false},
		{"removals do not use up making", Running{Calls: 7, Making: 3}, Running{Calls: 3, Making: 3}, Expand, true},
	} {
		if got := l.Admit(tc.node, tc.driver, tc.kind); got != tc.want {
			t.Errorf("%s: Admit(%+v, %+v, %v) = %v", tc.name, tc.node, tc.driver, tc.kind, got)
		}
	}
	if d := DefaultLimits(); d.Reserved >= d.Driver || d.Driver > d.Node {
		t.Errorf("the defaults leave nothing: %+v", d)
	}
}

// TestOneDurableWriteCoversTheChain: attach, stage and both pods' publishes
// need no write of their own after the first, and so do the removals.
func TestOneDurableWriteCoversTheChain(t *testing.T) {
	va := variant{attach: true, stage: true}
	f := Facts{Driver: DriverFacts{Up: true, Attach: true, Stage: true}, Synced: true}
	var v, durable state.Volume
	for _, w := range []state.Want{va.wants()[2], {}} {
		writes, calls := 0, 0
		for {
			op, _ := Next(w, v, f, start)
			if op.Kind == None {
				break
			}
			begun := Begin(v, op, w, f)
			if !Covers(durable, begun, op) {
				durable = Intent(Begin(v, op, w, f), op, w, f)
				writes++
			}
			v = Complete(begun, op, Result{}, start)
			calls++
		}
		if writes != 1 || calls != 4 {
			t.Errorf("%d calls took %d durable writes, want 4 and 1", calls, writes)
		}
	}
}

// Items: N-102.
func TestAnExpansionThatIsRefusedForGoodDoesNotHoldTheVolumeUp(t *testing.T) {
	va := variant{stage: true, pacing: true}
	w, f := va.wants()[2], Facts{Driver: DriverFacts{Up: true, Stage: true, Expand: true}, Synced: true}
	v := state.Volume{ID: "d^h"}
	for range 2 {
		op, _ := Next(w, v, f, start)
		v = Complete(Begin(v, op, w, f), op, Result{}, start)
	}
	op, _ := Next(w, v, f, start)
	if op != (Op{Kind: Expand, Pod: "a", SizeBytes: 9}) {
		t.Fatalf("next is %v, want Expand", op)
	}
	v = Complete(v, op, Result{Err: callError(state.Final)}, start)
	op, held := Next(w, v, f, start.Add(time.Hour))
	if op.Kind != None || held.Step != Expand || held.Code != Final || !held.Until.IsZero() {
		t.Errorf("next is %v, held %+v", op, held)
	}
	if v.Mounts["a"].Phase != state.Present {
		t.Error("the mount suffered")
	}
	if got := Complete(v, Op{Kind: Expand, Pod: "a", SizeBytes: 9}, Result{SizeBytes: 12}, start); got.SizeBytes != 12 || got.ExpandFailed.Value().Attempts != 0 {
		t.Errorf("after success: size %d, %+v", got.SizeBytes, got.ExpandFailed.Value())
	}
}

// Items: I15.
func TestAReadOnlyMountIsNotExpanded(t *testing.T) {
	va := variant{}
	w, f := va.wants()[5], Facts{Driver: DriverFacts{Up: true, Expand: true}, Synced: true}
	w.SizeBytes = 9
	v := Complete(Begin(state.Volume{ID: "d^h"}, Op{Kind: Publish, Pod: "a"}, w, f), Op{Kind: Publish, Pod: "a", Revision: "1"}, Result{}, start)
	op, held := Next(w, v, f, start)
	if op.Kind != None || held.Code != readOnlySize {
		t.Errorf("next is %v, held %+v", op, held)
	}
	// A volume that no pod has mounted yet says nothing about its size.
	if op, held := Next(w, state.Volume{ID: "d^h"}, Facts{Synced: true, Driver: DriverFacts{Why: "away", Expand: true}}, start); op.Kind != None || held.Step != Publish {
		t.Errorf("next is %v, held %+v", op, held)
	}
}

// TestHeldNamesTheFirstReasonAndTheEarliestMoment: two mounts wait, the second comes back first.
// Items: D09, D10.
func TestHeldNamesTheFirstReasonAndTheEarliestMoment(t *testing.T) {
	w, f := variant{}.wants()[2], Facts{Driver: DriverFacts{Up: true}, Synced: true}
	waits := func(pod state.PodUID, d time.Duration) state.Mount {
		return state.Mount{MountSpec: mountSpec(pod, false), Fact: state.Fact{Phase: state.Entering, Failed: &state.Retry{Attempts: 1, NotBefore: start.Add(d)}}}
	}
	v := state.Volume{ID: "d^h", Spec: w.Spec, SizeBytes: 1, Mounts: map[state.PodUID]state.Mount{"a": waits("a", time.Minute), "b": waits("b", time.Second)}}
	op, held := Next(w, v, f, start)
	if op.Kind != None || held.Pod != "a" || held.Code != Pause || !held.Until.Equal(start.Add(time.Second)) {
		t.Errorf("next is %v, held %+v", op, held)
	}
	if op, _ = Next(w, v, f, start.Add(2*time.Second)); op != (Op{Kind: Publish, Pod: "b", Revision: "1"}) {
		t.Errorf("b's call is kept from being made by a's pause: %v", op)
	}
	done := Complete(Begin(v, op, w, f), Op{Kind: Publish, Pod: "b", Revision: "1"}, Result{}, start.Add(2*time.Second))
	if done.Mounts["a"].Failed == nil || *done.Mounts["a"].Failed != *v.Mounts["a"].Failed {
		t.Errorf("the end of b's call says of a: %+v", done.Mounts["a"].Failed)
	}
}

func TestInlineAndBuiltinVolumesHaveNoAttachAndNoStage(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Attach: true, Stage: true}, Synced: true}
	for _, spec := range []state.Spec{{Driver: "d", Ephemeral: true}, {Driver: "d", Builtin: true}} {
		w := variant{}.wants()[1]
		w.Spec = &spec
		if op, _ := Next(w, state.Volume{}, f, start); op.Kind != Publish {
			t.Errorf("%+v: first call is %v", spec, op)
		}
	}
}

func TestBuiltinVolumeWithAStagePathIsStaged(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	w := variant{}.wants()[1]
	w.Spec = &state.Spec{Driver: "d", Builtin: true, StagePath: "/stage"}
	if op, _ := Next(w, state.Volume{}, f, start); op.Kind != Stage {
		t.Errorf("first call is %v", op)
	}
}

// Items: B15.
func TestNewRecordStartsFromTheSizeTheNodeHasMade(t *testing.T) {
	w := variant{stage: true}.wants()[1]
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}}
	for _, tc := range []struct{ have, size, want int64 }{{5, 9, 5}, {0, 9, 9}, {0, 0, 0}} {
		w.HaveBytes, w.SizeBytes = tc.have, tc.size
		if got := Begin(state.Volume{}, Op{Kind: Stage}, w, f).SizeBytes; got != tc.want {
			t.Errorf("have %d, wanted %d: the record starts at %d, want %d", tc.have, tc.size, got, tc.want)
		}
	}
	// The claim's later size does not replace it; an expansion by the node does.
	w.HaveBytes, w.SizeBytes = 5, 5
	f.Driver.Expand, f.Synced = true, true
	v, _, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	w.HaveBytes, w.SizeBytes = 9, 9
	if v, changed := Resize(v, w, f); v.SizeBytes != 5 || changed {
		t.Errorf("the record has %d, want 5", v.SizeBytes)
	}
	if op, _ := Next(w, v, f, start); op.Kind != Expand || op.SizeBytes != 9 {
		t.Errorf("next is %v", op)
	}
}

func TestVerbsAsText(t *testing.T) {
	for k := Attach; k <= Detach; k++ {
		b, err := k.MarshalText()
		var back Kind
		if err != nil || back.UnmarshalText(b) != nil || back != k {
			t.Errorf("%v does not survive its text %q: %v, %v", k, b, back, err)
		}
	}
	var k Kind
	if err := k.UnmarshalText([]byte("Mount")); err == nil {
		t.Error("an unknown verb is read")
	}
	if got := Kind(99).String(); got != "Kind(99)" {
		t.Error(got)
	}
	if got := (Op{Kind: Publish, Pod: "a"}).String() + ", " + (Op{Kind: Stage}).String(); got != "Publish for pod a, Stage" {
		t.Error(got)
	}
}

func BenchmarkNext(b *testing.B) {
	w, f := variant{stage: true}.wants()[1], Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	var v state.Volume
	for range 2 {
		op, _ := Next(w, v, f, start)
		v = Complete(Begin(v, op, w, f), op, Result{}, start)
	}
	v.Mounts["a"] = func() state.Mount { m := v.Mounts["a"]; m.Revision = "1"; return m }()
	b.ReportAllocs()
	for b.Loop() {
		if op, _ := Next(w, v, f, start); op.Kind != None {
			b.Fatal(op)
		}
	}
}

func TestWhatAnEndedPodHasLeaves(t *testing.T) {
	failed := state.Retry{Attempts: 3}
	v := state.Volume{For: []state.PodUID{"a", "b", "c"}, Mounts: map[state.PodUID]state.Mount{
		"a": {Fact: state.Fact{Phase: state.Present, Failed: &failed}},
		"b": {Fact: state.Fact{Phase: state.Leaving, Failed: &failed}},
		"c": {Fact: state.Fact{Phase: state.Present}},
	}}
	for pod, want := range map[state.PodUID]state.Fact{
		"a": {Phase: state.Leaving}, "b": {Phase: state.Leaving, Failed: &failed}, "x": {},
	} {
		got := Leave(v, pod)
		if got.Mounts[pod].Fact != want || got.Mounts["c"].Phase != state.Present || len(got.Mounts) != 3 {
			t.Errorf("%s: %+v, want %+v", pod, got.Mounts, want)
		}
		if slices.Contains(got.For, pod) || !slices.Contains(got.For, "c") {
			t.Errorf("%s: still for %v", pod, got.For)
		}
	}
	if v.Mounts["a"].Phase != state.Present || len(v.For) != 3 || v.For[0] != "a" {
		t.Error("Leave changed its argument")
	}
}

// TestAMountThatIsNotAsWantedAnyMoreSaysSo: it may be in use, so it is not touched (rule 5), and
// the status says why (rule 10).
func TestAMountThatIsNotAsWantedAnyMoreSaysSo(t *testing.T) {
	spec := state.MountSpec{Pod: state.Pod{UID: "a"}, Target: "/t"}
	v := state.Volume{Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Present}, MountSpec: spec}}}
	w := state.Want{Spec: &state.Spec{}, Pods: map[state.PodUID]state.WantMount{"a": {MountSpec: spec}}}
	f := Facts{Synced: true, Driver: DriverFacts{Up: true}}
	if op, held := Next(w, v, f, start); op != (Op{}) || held != (Held{}) {
		t.Errorf("as wanted: %v %+v", op, held)
	}
	spec.ReadOnly = true
	w.Pods["a"] = state.WantMount{MountSpec: spec}
	if op, held := Next(w, v, f, start); op != (Op{}) || held != (Held{Step: Publish, Pod: "a", Code: OtherForm, Reason: reasonOtherwise}) {
		t.Errorf("read-only since: %v %+v", op, held)
	}
}

// TestWhatContainersMayUseIsMadeAgainAsItWas: a mount that was present in this boot, and is
// entering because the journal lost that, is not removed because the request has changed. After
// a reboot no pod uses it and the change takes effect.
func TestWhatContainersMayUseIsMadeAgainAsItWas(t *testing.T) {
	va := variant{stage: true}
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	was := va.wants()[1]
	v := state.Volume{ID: "d^h"}
	for range 2 {
		op, _ := Next(was, v, f, start)
		v = Complete(Begin(v, op, was, f), op, Result{Seen: state.Seen{Exists: true, Mounted: true}}, start)
	}
	m := v.Mounts["a"]
	m.Phase, v.Stage.Phase = state.Entering, state.Entering
	v.Mounts = withMount(v.Mounts, "a", m)
	readOnly, changed := va.wants()[5], va.wants()[3]
	if !readOnly.Pods["a"].ReadOnly || changed.Spec.FSType == v.Spec.FSType {
		t.Fatal("the wishes are not those meant")
	}
	for name, w := range map[string]state.Want{"mount": readOnly, "volume": changed} {
		v := v
		for _, want := range []Kind{Stage, Publish} {
			op, held := Next(w, v, f, start)
			if op.Kind != want {
				t.Fatalf("%s changed: next is %v (%+v), want %v", name, op, held, want)
			}
			v = Complete(Begin(v, op, w, f), op, Result{Seen: state.Seen{Exists: true, Mounted: true}}, start)
		}
		if v.Mounts["a"].ReadOnly || v.Spec.FSType != "x" {
			t.Errorf("%s changed: the calls said something else than before: %+v", name, v)
		}
	}
	rebooted, _ := Adopt(v, false, nil)
	if op, _ := Next(readOnly, rebooted, f, start); op.Kind != Unpublish {
		t.Errorf("after a reboot: next is %v, want the way to another request", op)
	}
}

// TestAStartLooksForMountsThatAPodMayHaveBeenToldOf: the phase present is written lazily, so after
// a crash the kernel may have mounts that the journal does not have as present.
func TestAStartLooksForMountsThatAPodMayHaveBeenToldOf(t *testing.T) {
	v := state.Volume{Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering}, MountSpec: mountSpec("a", false)}}}
	for name, tc := range map[string]struct {
		builtin bool
		seen    state.Seen
		used    bool
	}{
		"mounted":                         {seen: state.Seen{Exists: true, Mounted: true}, used: true},
		"a directory of a failed publish": {seen: state.Seen{Exists: true}},
		"a kind that makes a directory":   {builtin: true, seen: state.Seen{Exists: true}, used: true},
		"nothing":                         {builtin: true},
	} {
		v := v
		v.Spec = &state.Spec{Builtin: tc.builtin}
		got, changes := Adopt(v, true, map[string]state.Seen{"/pods/a": tc.seen})
		if len(changes) != 0 || used(got, got.Mounts["a"]) != tc.used || got.Mounts["a"].Phase != state.Entering {
			t.Errorf("%s: %+v, %+v", name, got.Mounts["a"], changes)
		}
		if got, _ := Adopt(got, false, nil); used(got, got.Mounts["a"]) {
			t.Errorf("%s: used after a reboot", name)
		}
	}
	if v.Mounts["a"].Seen != (state.Seen{}) {
		t.Error("Adopt changed its argument")
	}
}

// The stage of an old attachment is given to no pod once there is a new one. An unknown
// attachment, as in a record of an earlier version, counts as the same one.
func TestAnotherAttachmentIsAnotherStage(t *testing.T) {
	for _, tc := range []struct {
		was, is string
		device  bool // the PublishContext names another device
		want    Kind // for a second pod, and for a single one
		alone   Kind
	}{
		{"1", "1", false, Publish, Publish},
		{"", "1", false, Publish, Publish},
		{"1", "", false, Publish, Publish},
		{"1", "2", false, None, Unstage},
		{"1", "1", true, None, Unstage},
	} {
		v := state.Volume{Spec: &state.Spec{Attachment: tc.was}, Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Present}}
		w := state.Want{Spec: &state.Spec{Attachment: tc.is}, Pods: map[state.PodUID]state.WantMount{"b": {}}}
		if tc.device {
			w.Spec.PublishContext = map[string]string{"device": "x"}
		}
		f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
		if op, _ := Next(w, v, f, start); op.Kind != tc.alone {
			t.Errorf("%+v: alone: %v", tc, op)
		}
		v.Mounts = map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Present}}}
		w.Pods["a"] = state.WantMount{}
		if op, held := Next(w, v, f, start); op.Kind != tc.want || tc.want == None && held.Code != Reattached {
			t.Errorf("%+v: %v, %+v", tc, op, held)
		}
	}
}

// A wish that waits for its attachment undoes nothing: it may not have been read yet. If the wish
// does not wait for one, the volume has another form.
//
// Faults: A140.
func TestAnAttachmentThatIsNotReadUndoesNothing(t *testing.T) {
	was := state.Spec{Attachment: "1", PublishContext: map[string]string{"device": "x"}}
	for _, tc := range []struct {
		hold string
		want Kind
	}{{"not read yet", None}, {"", Unstage}} {
		v := state.Volume{Spec: &was, Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Present}}
		w := state.Want{Spec: &state.Spec{}, Pods: map[state.PodUID]state.WantMount{"b": {}}, Hold: tc.hold}
		f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
		if op, held := Next(w, v, f, start); op.Kind != tc.want || held.Reason != tc.hold {
			t.Errorf("held %q: staged: %v, %+v", tc.hold, op, held)
		}
		v.Mounts = map[state.PodUID]state.Mount{"b": {Fact: state.Fact{Phase: state.Entering}}}
		want := None
		if tc.hold == "" {
			want = Unpublish
		}
		if op, _ := Next(w, v, f, start); op.Kind != want {
			t.Errorf("held %q: perhaps published: %v", tc.hold, op)
		}
	}
}

// An attachment or a stage was begun for a pod that is still listed and no longer wants it, and
// other pods want the volume in another form. It is removed if that pod has no mount, and stays if
// it has one.
func TestNobodyWaitsForAPodThatHasNothing(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true, Attach: true}, Synced: true, Keep: map[state.PodUID]string{"a": "kept"}}
	w := state.Want{Spec: &state.Spec{FSType: "y"}, Pods: map[state.PodUID]state.WantMount{"b": {}}}
	v := state.Volume{Spec: &state.Spec{FSType: "x"}, For: []state.PodUID{"a"}, Needs: state.Needs{Attach: true, Stage: true}}
	v.Attach.Phase = state.Entering
	if op, held := Next(w, v, f, start); op.Kind != Detach {
		t.Errorf("attachment: %v, %+v", op, held)
	}
	v.Attach.Phase, v.Stage.Phase = state.Present, state.Entering
	if op, held := Next(w, v, f, start); op.Kind != Unstage {
		t.Errorf("stage: %v, %+v", op, held)
	}
	if op, held := Next(state.Want{}, v, f, start); op.Kind != None || held.Reason != "kept" {
		t.Errorf("wanted by no other pod: %v, %+v", op, held)
	}
	v.Stage.Phase, v.Mounts = state.Present, map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Present}}}
	if op, _ := Next(w, v, f, start); op.Kind.Removes() {
		t.Errorf("with a mount: %v", op)
	}
}
