package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// labelWish returns a wish of pods with these labels, by UID.
func labelWish(labels map[state.PodUID]string) state.Want {
	w := variant{stage: true}.wants()[1]
	w.Pods = map[state.PodUID]state.WantMount{}
	for uid, label := range labels {
		m := mountSpec(uid, false)
		m.SELinuxLabel = label
		w.Pods[uid] = state.WantMount{MountSpec: m}
	}
	return w
}

func kinds(ops []Op) string {
	var all []string
	for _, op := range ops {
		all = append(all, op.String())
	}
	return strings.Join(all, ", ")
}

// TestAVolumeHasOneLabelForAllItsPods: pods with the same label share the stage. A pod with
// another label reports the conflict at once, and the first pod is not affected. Once no pod has
// the first label, the volume is staged again.
//
// Items: H07, H08, H09, H10, H01, H12.
// Scenarios: U-100, U-101.
func TestAVolumeHasOneLabelForAllItsPods(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	v, ops, _ := settle(t, labelWish(map[state.PodUID]string{"b": "L1"}), state.Volume{ID: "d^h"}, f)
	if v.Spec.SELinuxLabel != "L1" || len(ops) != 2 {
		t.Fatalf("label %q after %v", v.Spec.SELinuxLabel, ops)
	}
	v, ops, held := settle(t, labelWish(map[state.PodUID]string{"b": "L1", "c": "L1"}), v, f)
	if kinds(ops) != "Publish for pod c" || held != (Held{}) {
		t.Errorf("the same label: %v, %+v", ops, held)
	}
	for _, other := range []string{"L2", ""} {
		got, ops, held := settle(t, labelWish(map[state.PodUID]string{"a": other, "b": "L1", "c": "L1"}), v, f)
		if len(ops) != 0 || held.Pod != "a" || !strings.HasPrefix(held.Reason, "conflicting SELinux labels of volume pv: it is mounted with L1") || got.Mounts["b"].Phase != state.Present {
			t.Errorf("label %q: %v, %+v", other, ops, held)
		}
		got, ops, held = settle(t, labelWish(map[state.PodUID]string{"a": other}), v, f)
		if kinds(ops) != "Unpublish for pod b, Unpublish for pod c, Unstage, Stage, Publish for pod a" || got.Spec.SELinuxLabel != other || held != (Held{}) {
			t.Errorf("label %q, alone: %v, %+v", other, ops, held)
		}
		got, ops, _ = settle(t, labelWish(map[state.PodUID]string{"d": "L1"}), got, f)
		if kinds(ops) != "Unpublish for pod a, Unstage, Stage, Publish for pod d" || got.Spec.SELinuxLabel != "L1" {
			t.Errorf("label %q, then L1: %v, label %q", other, ops, got.Spec.SELinuxLabel)
		}
	}
}

// A volume for one pod at a time keeps its stage for the next pod with the same label, and
// is staged again for a pod with another label.
//
// Items: H07, H08.
func TestAVolumeForOnePodHasItsLabel(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	wish := func(pod state.PodUID, label string) state.Want {
		w := labelWish(map[state.PodUID]string{pod: label})
		w.Spec = new(*w.Spec)
		w.Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
		return w
	}
	v, _, _ := settle(t, wish("b", "L1"), state.Volume{ID: "d^h"}, f)
	for label, want := range map[string]string{
		"L1": "Unpublish for pod b, Publish for pod c", "L2": "Unpublish for pod b, Unstage, Stage, Publish for pod c",
	} {
		if got, ops, held := settle(t, wish("c", label), v, f); kinds(ops) != want || got.Spec.SELinuxLabel != label || held != (Held{}) {
			t.Errorf("%s: %s, held %+v", label, kinds(ops), held)
		}
	}
}

// TestAPodThatHasEndedIsInNobodysWay: its label no longer counts once its mount is gone.
//
// Items: H13.
func TestAPodThatHasEndedIsInNobodysWay(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	v, _, _ := settle(t, labelWish(map[state.PodUID]string{"a": "L1"}), state.Volume{ID: "d^h"}, f)
	w := labelWish(map[state.PodUID]string{"b": "L2"})
	f.Keep = map[state.PodUID]string{"a": "its containers run"}
	if _, ops, held := settle(t, w, v, f); len(ops) != 0 || held.Reason == "" {
		t.Errorf("while it runs: %v, %+v", ops, held)
	}
	f.Keep = nil
	if v, _, held := settle(t, w, v, f); v.Mounts["b"].Phase != state.Present || held != (Held{}) {
		t.Errorf("once it has ended: %+v, %+v", v, held)
	}
}

// Items: H12.
func TestWhichLabelAVolumeHas(t *testing.T) {
	type labels = map[state.PodUID]string
	for name, c := range map[string]struct {
		wanted labels
		has    string
		label  string
		others []state.PodUID
	}{
		"no pod":              {nil, "x", "", nil},
		"one":                 {labels{"a": "x"}, "", "x", nil},
		"all the same":        {labels{"a": "x", "b": "x"}, "", "x", nil},
		"the first":           {labels{"a": "x", "b": "y", "c": "x"}, "", "x", []state.PodUID{"b"}},
		"what it has":         {labels{"a": "x", "b": "y"}, "y", "y", []state.PodUID{"a"}},
		"what no pod wants":   {labels{"a": "x", "b": "y"}, "z", "x", []state.PodUID{"b"}},
		"none is one, too":    {labels{"a": "x", "b": ""}, "", "", []state.PodUID{"a"}},
		"none is what it has": {labels{"a": "", "b": "x"}, "x", "x", []state.PodUID{"a"}},
	} {
		if label, others := Labels(c.wanted, c.has); label != c.label || !slices.Equal(others, c.others) {
			t.Errorf("%s: got %q, %v; want %q, %v", name, label, others, c.label, c.others)
		}
	}
}
