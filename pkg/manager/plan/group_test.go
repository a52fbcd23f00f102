package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupWish returns a wish of pods with these fsGroups, by UID; "" is none.
func groupWish(groups map[state.PodUID]int64) state.Want {
	w := variant{stage: true}.wants()[1]
	w.Pods = map[state.PodUID]state.WantMount{}
	for uid, gid := range groups {
		m := mountSpec(uid, false)
		if gid != 0 {
			m.FSGroup = &gid
		}
		w.Pods[uid] = state.WantMount{MountSpec: m}
	}
	return w
}

// settle makes every call that Next returns, each with success.
func settle(t *testing.T, w state.Want, v state.Volume, f Facts) (state.Volume, []Op, Held) {
	t.Helper()
	var ops []Op
	for range 20 {
		op, held := Next(w, v, f, start)
		if op.Kind == None {
			return v, ops, held
		}
		ops = append(ops, op)
		v = Complete(Begin(v, op, w, f), op, Result{}, start)
	}
	t.Fatalf("no end: %v", ops)
	return v, ops, Held{}
}

// CSI 1.13, volume_mount_group and "NodePublishVolume": one capability for the
// stage and every pod, also in a call that is repeated after a crash.
// Items: N-45, N-47.
func TestGroupIsOneForStageAndAllPods(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true, MountGroup: true}, Synced: true}
	w := groupWish(map[state.PodUID]int64{"a": 0, "b": 3000})
	intent := Intent(Begin(state.Volume{ID: "d^h"}, Op{Kind: Stage}, w, f), Op{Kind: Stage}, w, f)
	if got := Begin(intent, Op{Kind: Stage}, w, f).Spec; got.MountGroup != "3000" || !got.Equal(intent.Spec) {
		t.Errorf("the repeated call's group is %q, the first one's %q, want 3000", got.MountGroup, intent.Spec.MountGroup)
	}
	v, ops, held := settle(t, w, state.Volume{ID: "d^h"}, f)
	if v.Spec.MountGroup != "3000" || len(ops) != 3 || held.Reason != "" {
		t.Errorf("group %q after %v, held %+v", v.Spec.MountGroup, ops, held)
	}
	// The group stays although another pod, first by UID, asks for another.
	w = groupWish(map[state.PodUID]int64{"a": 2000, "b": 3000})
	delete(v.Mounts, "a")
	v, ops, held = settle(t, w, v, f)
	if v.Spec.MountGroup != "3000" || len(ops) != 0 || held.Pod != "a" || !strings.Contains(held.Reason, "3000") || !strings.Contains(held.Reason, "2000") {
		t.Errorf("group %q after %v, held %+v", v.Spec.MountGroup, ops, held)
	}
	// It is staged again for the other pod once no process has it.
	w = groupWish(map[state.PodUID]int64{"a": 2000})
	v, ops, held = settle(t, w, v, f)
	if v.Spec.MountGroup != "2000" || len(ops) != 4 || v.Mounts["a"].Phase != state.Present || held.Reason != "" {
		t.Errorf("group %q after %v, held %+v", v.Spec.MountGroup, ops, held)
	}
	// While the driver is down, its abilities are unknown, and nothing is undone.
	f.Driver = DriverFacts{Why: "away"}
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != "" {
		t.Errorf("without the driver: %v, held %+v", op, held)
	}
}

// Rule 5: a mount that vanished under a pod is made again as it was, also when
// the pod asks for another group now.
func TestAMountThatVanishedIsMadeAgainWithTheGroupThatItHad(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true, MountGroup: true}, Synced: true}
	v, _, _ := settle(t, groupWish(map[state.PodUID]int64{"a": 2000}), state.Volume{ID: "d^h"}, f)
	m := v.Mounts["a"]
	m.Seen = state.Seen{Exists: true, Mounted: true}
	v.Mounts["a"] = m
	v, changes := Adopt(v, true, map[string]state.Seen{m.Target: {}, v.Spec.StagePath: {}})
	v, ops, held := settle(t, groupWish(map[state.PodUID]int64{"a": 3000}), v, f)
	if len(changes) != 1 || len(ops) != 1 || v.Mounts["a"].Phase != state.Present || *v.Mounts["a"].FSGroup != 2000 {
		t.Errorf("changes %v, then calls %v to %+v, held %+v", changes, ops, v.Mounts["a"], held)
	}
	// Also if the driver has gained the ability meanwhile.
	f.Driver.MountGroup = false
	v, _, _ = settle(t, groupWish(map[state.PodUID]int64{"a": 2000}), state.Volume{ID: "d^h"}, f)
	m = v.Mounts["a"]
	m.Phase, m.Seen = state.Entering, state.Seen{Exists: true, Mounted: true}
	v.Mounts["a"] = m
	f.Driver.MountGroup = true
	if v, ops, held := settle(t, groupWish(map[state.PodUID]int64{"a": 2000}), v, f); len(ops) != 1 || v.Spec.MountGroup != "" {
		t.Errorf("a driver that learnt to give groups: %v, group %q, held %+v", ops, v.Spec.MountGroup, held)
	}
}

// Items: F18.
func TestGroupIsOnlyForDriversThatTakeIt(t *testing.T) {
	w := groupWish(map[state.PodUID]int64{"a": 2000, "b": 3000})
	v, ops, held := settle(t, w, state.Volume{ID: "d^h"}, Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true})
	if v.Spec.MountGroup != "" || len(ops) != 3 || held.Reason != "" {
		t.Errorf("group %q after %v, held %+v", v.Spec.MountGroup, ops, held)
	}
}

// attachRequired becomes false while a volume is attached and mounted: it stays, and is
// detached once no pod wants it.
// Items: A06, B14, E10.
func TestAttachmentThatIsNeededNoMore(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Attach: true, Stage: true}, Synced: true}
	w := variant{}.wants()[1]
	v, ops, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	if !v.Needs.Attach || len(ops) != 3 {
		t.Fatalf("calls: %v", ops)
	}
	w.Spec = new(*w.Spec)
	w.Spec.NoAttach = true
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != "" {
		t.Errorf("what is mounted follows a change of the object: %v, held %+v", op, held)
	}
	var kinds []Kind
	_, ops, _ = settle(t, state.Want{}, v, f)
	for _, op := range ops {
		kinds = append(kinds, op.Kind)
	}
	if !slices.Equal(kinds, []Kind{Unpublish, Unstage, Detach}) {
		t.Errorf("removal: %v", ops)
	}
}

// The same if a cluster attached it: the wish no longer has an attachment, and pods that come
// while the volume is in use get it as it was begun. Once it is no longer in use, it is made
// without one.
//
// Items: A06, B14.
func TestAttachmentOfAClusterThatIsNeededNoMore(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	w := variant{}.wants()[1]
	w.Spec = new(*w.Spec)
	w.Spec.Attachment, w.Spec.PublishContext = "va-1", map[string]string{"device": "/dev/x"}
	v, _, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	attached := w.Spec
	w.Spec = new(*w.Spec)
	w.Spec.NoAttach, w.Spec.Attachment, w.Spec.PublishContext = true, "", nil
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != "" {
		t.Errorf("what is mounted follows a change of the object: %v, held %+v", op, held)
	}
	w.Pods["late"] = state.WantMount{MountSpec: mountSpec("late", false)}
	v, ops, held := settle(t, w, v, f)
	if len(ops) != 1 || ops[0].Kind != Publish || ops[0].Pod != "late" || held.Reason != "" || !v.Spec.Equal(attached) {
		t.Errorf("a pod that comes: %v, held %+v, of %+v", ops, held, v.Spec)
	}
	v, _, _ = settle(t, state.Want{}, v, f)
	v, _, held = settle(t, w, v, f)
	if held.Reason != "" || v.Spec.Attachment != "" || v.Spec.PublishContext != nil || len(v.Mounts) != len(w.Pods) {
		t.Errorf("made anew: held %+v, %+v", held, v)
	}
}

// attachRequired: false of the CSIDriver object, as it is when the volume is begun.
//
// Sidecars: SA-14.
func TestVolumeThatNeedsNoAttachmentIsNotAttached(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Attach: true, Stage: true}, Synced: true}
	w := variant{}.wants()[1]
	w.Spec.NoAttach = true
	v, ops, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	if v.Needs.Attach || len(ops) != 2 {
		t.Errorf("calls: %v", ops)
	}
	w.Spec = new(*w.Spec)
	w.Spec.NoAttach = false
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != "" {
		t.Errorf("what is mounted follows a change of the object: %v, held %+v", op, held)
	}
}

// Only the record changes by the group and label that pods share: the wish, which all plans of
// the volume share, does not.
func TestWhatIsAgreedOnIsNotWrittenIntoTheWish(t *testing.T) {
	group := int64(7)
	m := mountSpec("a", false)
	m.FSGroup, m.SELinuxLabel = &group, "l"
	w := state.Want{Spec: &state.Spec{Driver: "d"}, Pods: map[state.PodUID]state.WantMount{"a": {MountSpec: m}}}
	v := Begin(state.Volume{ID: "d^h"}, Op{Kind: Publish, Pod: "a"}, w, Facts{Driver: DriverFacts{Up: true, MountGroup: true}})
	if v.Spec.MountGroup != "7" || v.Spec.SELinuxLabel != "l" || w.Spec.MountGroup != "" || w.Spec.SELinuxLabel != "" {
		t.Errorf("the record has %+v, the wish %+v", v.Spec, w.Spec)
	}
}
