package plan

import (
	"maps"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A mount whose record the journal lost is not replaced, and nothing below it is removed.
//
// Faults: A186.
func TestWhatHasNoRecordIsNotTouched(t *testing.T) {
	spec := variant{exclusive: true}.spec("x")
	shared := variant{}.spec("x")
	want := func(s *state.Spec, pods ...state.PodUID) state.Want {
		w := state.Want{Spec: s, Pods: map[state.PodUID]state.WantMount{}}
		for _, p := range pods {
			w.Pods[p] = state.WantMount{MountSpec: mountSpec(p, false)}
		}
		return w
	}
	unknown := Doubt{Why: "pod u may use it", Operator: true}
	mounted := state.Seen{Exists: true, Mounted: true}
	made := func(d Doubt, pods ...state.PodUID) Doubt {
		d.Made = map[state.PodUID]state.Seen{}
		for _, p := range pods {
			d.Made[p] = mounted
		}
		return d
	}
	staged := func(s *state.Spec, mounts map[state.PodUID]state.Phase) state.Volume {
		v := state.Volume{ID: "d^h", Spec: s, Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Present}, Mounts: map[state.PodUID]state.Mount{}}
		for p, phase := range mounts {
			v.Mounts[p] = state.Mount{Fact: state.Fact{Phase: phase}, MountSpec: mountSpec(p, false)}
		}
		return v
	}
	attachedAs := func(s state.Spec, uid string) *state.Spec {
		s.Attachment = uid
		return &s
	}
	none := state.Volume{ID: "d^h"}
	for name, c := range map[string]struct {
		w        state.Want
		v        state.Volume
		d        Doubt
		op       Op
		held     Kind
		operator bool
	}{
		"a pod that is not known may have it: not staged":          {want(&shared, "a"), none, unknown, Op{}, Stage, true},
		"what is mounted is not known: not staged":                 {want(&shared, "a"), none, Doubt{Why: "not looked"}, Op{}, Stage, false},
		"a known pod has it: staged again":                         {want(&shared, "a"), none, made(unknown, "a"), Op{Kind: Stage}, None, false},
		"a known pod has it: published to it":                      {want(&shared, "a", "b"), staged(&shared, nil), made(unknown, "b"), Op{Kind: Publish, Pod: "b"}, None, false},
		"only a known pod has it: published to another":            {want(&shared, "a", "b"), staged(&shared, nil), made(Doubt{}, "b"), Op{Kind: Publish, Pod: "a"}, None, false},
		"a pod that is not known may have it: not published":       {want(&shared, "a"), staged(&shared, nil), unknown, Op{}, Publish, true},
		"a record says that it may be published: again":            {want(&shared, "a"), staged(&shared, map[state.PodUID]state.Phase{"a": state.Entering}), unknown, Op{Kind: Publish, Pod: "a"}, None, false},
		"exclusive, another pod may have it":                       {want(&spec, "a"), staged(&spec, nil), unknown, Op{}, Publish, true},
		"exclusive, recorded, and another pod may have it":         {want(&spec, "a"), staged(&spec, map[state.PodUID]state.Phase{"a": state.Entering}), unknown, Op{}, Publish, true},
		"exclusive, the other pod has it":                          {want(&spec, "a", "b"), staged(&spec, nil), made(Doubt{}, "b"), Op{Kind: Publish, Pod: "b"}, None, false},
		"exclusive, the other pod has it and is published":         {want(&spec, "a", "b"), staged(&spec, map[state.PodUID]state.Phase{"b": state.Present}), Doubt{}, Op{}, Publish, false},
		"not unstaged from below a pod that is not known":          {state.Want{}, staged(&shared, nil), unknown, Op{}, Unstage, true},
		"not unstaged from below a pod without a record":           {state.Want{Spec: new(variant{}.spec("y")), Pods: want(&shared, "a").Pods}, staged(&shared, nil), made(Doubt{}, "a"), Op{Kind: Publish, Pod: "a"}, None, false},
		"exclusive, an older record of another pod makes way":      {want(&spec, "a", "b"), staged(&spec, map[state.PodUID]state.Phase{"a": state.Entering}), made(Doubt{}, "b"), Op{Kind: Unpublish, Pod: "a"}, Publish, false},
		"attached anew below a pod without a record: not unstaged": {state.Want{Spec: attachedAs(shared, "2"), Pods: want(&shared, "a").Pods}, staged(attachedAs(shared, "1"), nil), made(Doubt{}, "a"), Op{}, Unstage, false},
		"what is mounted is not known: made again as it was":       {want(&shared, "a"), staged(new(variant{}.spec("y")), map[state.PodUID]state.Phase{"a": state.Entering}), Doubt{Why: "not looked"}, Op{Kind: Publish, Pod: "a"}, None, false},
		"another pod may have it: made anew":                       {want(&shared, "a"), staged(new(variant{}.spec("y")), map[state.PodUID]state.Phase{"a": state.Entering}), unknown, Op{Kind: Unpublish, Pod: "a"}, None, false},
		"unpublished from a pod with a record":                     {state.Want{}, staged(&shared, map[state.PodUID]state.Phase{"a": state.Present}), unknown, Op{Kind: Unpublish, Pod: "a"}, None, false},
		"not detached from below a pod that is not known": {state.Want{}, state.Volume{
			ID: "d^h", Spec: &shared, Needs: state.Needs{Attach: true},
			Attach: state.Fact{Phase: state.Present},
		}, unknown, Op{}, Detach, true},
		"not detached on the word of an older record alone": {state.Want{}, state.Volume{
			ID: "d^h", Spec: &shared, Needs: state.Needs{Attach: true}, Attach: state.Fact{Phase: state.Leaving},
		}, Doubt{Attached: true}, Op{}, Detach, true},
		"unstaged all the same": {state.Want{}, staged(&shared, nil), Doubt{Attached: true}, Op{Kind: Unstage}, None, false},
	} {
		f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true, Doubt: c.d}
		op, held := Next(c.w, c.v, f, start)
		if op != c.op || held.Step != c.held || held.Operator != c.operator {
			t.Errorf("%s: %v, held %+v", name, op, held)
		}
	}
	b := Begin(staged(&shared, nil), Op{Kind: Publish, Pod: "a"}, want(&shared, "a"), Facts{Driver: DriverFacts{Up: true, Stage: true}, Doubt: made(Doubt{}, "a")})
	if m := b.Mounts["a"]; !used(b, m) {
		t.Errorf("what is made again does not count as in use: %+v", m)
	}
}

// The first call of a volume gives their record to all pods that have it without one: what follows does not take it
// from below them, although an operator accepts the loss meanwhile, and a pod that leaves is unpublished first. A
// mount that has a record keeps it; of an exclusive volume, one pod at most gets one.
//
// Faults: A186.
func TestTheFirstCallRecordsTheMountsOfItsPods(t *testing.T) {
	seen := state.Seen{Exists: true, Mounted: true}
	two, one := map[state.PodUID]state.Seen{"a": seen, "b": seen}, map[state.PodUID]state.Seen{"a": seen}
	left := state.Mount{Fact: state.Fact{Phase: state.Leaving}, MountSpec: mountSpec("b", true)}
	for name, c := range map[string]struct {
		va   variant
		op   Op
		made map[state.PodUID]state.Seen
		why  string
		has  map[state.PodUID]state.Mount
		want map[state.PodUID]state.Phase
	}{
		"attached":                   {variant{attach: true, stage: true}, Op{Kind: Attach}, two, "", nil, map[state.PodUID]state.Phase{"a": state.Entering, "b": state.Entering}},
		"staged":                     {variant{stage: true}, Op{Kind: Stage}, two, "", nil, map[state.PodUID]state.Phase{"a": state.Entering, "b": state.Entering}},
		"published":                  {variant{}, Op{Kind: Publish, Pod: "a"}, two, "", nil, map[state.PodUID]state.Phase{"a": state.Entering, "b": state.Entering}},
		"one has a record":           {variant{stage: true}, Op{Kind: Stage}, two, "", map[state.PodUID]state.Mount{"b": left}, map[state.PodUID]state.Phase{"a": state.Entering, "b": state.Leaving}},
		"exclusive, of one pod":      {variant{stage: true, exclusive: true}, Op{Kind: Stage}, one, "", nil, map[state.PodUID]state.Phase{"a": state.Entering}},
		"exclusive, of several pods": {variant{stage: true, exclusive: true}, Op{Kind: Stage}, two, "", nil, nil},
		"exclusive, and another may": {variant{stage: true, exclusive: true}, Op{Kind: Stage}, one, "pod u may use it", nil, nil},
	} {
		spec := c.va.spec("x")
		w := state.Want{Spec: &spec, Pods: map[state.PodUID]state.WantMount{"a": {MountSpec: mountSpec("a", false)}, "b": {MountSpec: mountSpec("b", false)}}}
		f := Facts{Driver: DriverFacts{Up: true, Stage: c.va.stage, Attach: c.va.attach}, Synced: true, Doubt: Doubt{Made: c.made, Why: c.why}}
		v := Begin(state.Volume{ID: "d^h", Spec: &spec, Mounts: c.has}, c.op, w, f)
		got := map[state.PodUID]state.Phase{}
		for pod, m := range v.Mounts {
			if got[pod] = m.Phase; m.Phase == state.Entering && !used(v, m) {
				t.Errorf("%s: %s does not count as in use: %+v", name, pod, m)
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		f.Doubt = Doubt{}
		if op, _ := Next(state.Want{}, Complete(v, c.op, Result{}, start), f, start); len(c.want) > 0 && op.Kind != Unpublish {
			t.Errorf("%s: all have left, and %v comes first", name, op)
		}
	}
}

// A stage without a record gets one if the volume has a record, so that it is removed before
// the attachment.
//
// Faults: A139.
func TestAStageWithoutARecordIsTakenIn(t *testing.T) {
	spec := variant{}.spec("x")
	mounted := Doubt{Staged: state.Seen{Exists: true, Mounted: true}}
	attached := state.Volume{ID: "d^h", Spec: &spec, Needs: state.Needs{Attach: true, Stage: true}, Attach: state.Fact{Phase: state.Entering}}
	unneeded, staged := attached, attached
	unneeded.Needs.Stage = false
	staged.Stage.Phase = state.Present
	for name, c := range map[string]struct {
		v       state.Volume
		d       Doubt
		changed bool
	}{
		"attached by its record":     {attached, mounted, true},
		"nothing is mounted":         {attached, Doubt{}, false},
		"its record knows the stage": {staged, mounted, false},
		"it was begun without":       {unneeded, mounted, false},
		"it has no record":           {state.Volume{ID: "d^h", Needs: state.Needs{Stage: true}}, mounted, false},
	} {
		now, changed := AdoptStage(c.v, c.d)
		if changed != c.changed || changed && (now.Stage.Phase != state.Entering || now.Staged != mounted.Staged) {
			t.Errorf("%s: changed %t, stage %+v", name, changed, now.Stage)
		}
		if !changed {
			continue
		}
		op, _ := Next(state.Want{}, now, Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}, start)
		if op.Kind != Unstage {
			t.Errorf("%s: %v comes first", name, op)
		}
	}
}
