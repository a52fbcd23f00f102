package plan

import (
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
