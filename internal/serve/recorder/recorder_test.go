package recorder

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
)

func ended(volume string, n int) manager.EndedCall {
	return manager.EndedCall{Volume: state.VolumeID(volume), Began: time.Unix(int64(n), 0), Code: fmt.Sprint(n)}
}

// The recorder keeps a volume's first call, and the last ones of the rest.
func TestFirstAndLastCallsAreKept(t *testing.T) {
	var r Recorder
	for n := range 3 * PerVolume {
		r.Record(ended("v", n))
	}
	got := r.Calls("v")
	if len(got) != PerVolume || got[0].Code != "0" || got[1].Code != fmt.Sprint(2*PerVolume+1) || got[PerVolume-1].Code != fmt.Sprint(3*PerVolume-1) {
		t.Errorf("%d calls are kept: %v", len(got), got)
	}
}

// The volume that has been quiet for longest makes room, and no other.
func TestOldestVolumeMakesRoom(t *testing.T) {
	var r Recorder
	for n := range Volumes {
		r.Record(ended(fmt.Sprint("v", n), n))
	}
	r.Record(ended("v0", Volumes))
	r.Record(ended("new", Volumes+1))
	for volume, want := range map[string]int{"v0": 2, "v1": 0, "v2": 1, "new": 1, "never": 0} {
		if got := r.Calls(state.VolumeID(volume)); len(got) != want {
			t.Errorf("%s: %d calls are kept, want %d", volume, len(got), want)
		}
	}
}

func TestCallsOfSeveralVolumesAreInOrderOfTime(t *testing.T) {
	var r Recorder
	for _, n := range []int{1, 3, 5} {
		r.Record(ended("a", n))
		r.Record(ended("b", n-1))
	}
	if d := cmp.Diff(r.Calls("a", "b"), r.AllCalls()); d != "" {
		t.Errorf("of every volume: %s", d)
	}
	got := r.Calls("a", "b")
	for i, c := range got {
		if c.Code != fmt.Sprint(i) {
			t.Fatalf("out of order: %v", got)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d calls, want 6", len(got))
	}
}

// Calls keep everything that people read, and nothing as large as a record: 1,000 volumes
// with four calls each take less than 1 MB.
func TestCallsAreKeptWholeAndSmall(t *testing.T) {
	var r Recorder
	ok := manager.EndedCall{Volume: "v", Driver: "d", Migrated: true, Op: plan.Expand, SizeBytes: 7, Pod: "p", Began: time.Unix(1, 2), TookNanos: 3}
	failed := manager.EndedCall{Volume: "v", Driver: "d", Op: plan.Unpublish, Step: state.UnmountLazy, Began: time.Unix(2, 0), Code: "Internal", Error: "text", Outcome: "unknown", NoEffect: true}
	for _, c := range []manager.EndedCall{ok, failed} {
		with := c
		with.Of, with.Retry = state.Volume{ID: "v"}, state.Retry{Error: "text"}
		r.Record(with)
	}
	if d := cmp.Diff([]manager.EndedCall{ok, failed}, r.Calls("v")); d != "" {
		t.Error(d)
	}
	if size := unsafe.Sizeof(call{}); size > 160 {
		t.Errorf("a call takes %d bytes", size)
	}
}

// BenchmarkRecord records the first call of a new volume after thousands of others, as on a
// node whose pods come and go.
func BenchmarkRecord(b *testing.B) {
	var r Recorder
	n := 0
	for ; n < 2*Volumes; n++ {
		r.Record(ended(fmt.Sprint("v", n), n))
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Record(ended(fmt.Sprint("v", n), n))
		n++
	}
}

// The calls of a volume and a pod that are gone are found by the names that people know.
//
// Faults: A166.
func TestCallsOfWhatIsGoneAreFoundByName(t *testing.T) {
	var r Recorder
	c := ended("d^h", 1)
	c.Pod = "uid-1"
	c.Of = state.Volume{
		Spec:   &state.Spec{Name: "pv-1", Handle: "h", Claim: "shop/data"},
		Mounts: map[state.PodUID]state.Mount{"uid-1": {MountSpec: state.MountSpec{Pod: state.Pod{UID: "uid-1", Namespace: "shop", Name: "web"}}}},
	}
	r.Record(c)
	c.Began = time.Unix(2, 0)
	r.Record(c)
	r.Record(ended("other", 3))
	for _, name := range []string{"pv-1", "h", "shop/data", "data"} {
		if ids := r.CallsNamed(name); len(ids) != 1 || ids[0] != "d^h" {
			t.Errorf("%s: %q", name, ids)
		}
	}
	if ids := r.CallsOfPod("shop/web"); len(ids) != 1 || ids[0] != "d^h" || len(r.Calls(ids...)) != 2 {
		t.Errorf("of the pod: %q", ids)
	}
	for _, name := range []string{"", "shop", "web", "uid-1"} {
		if ids := append(r.CallsNamed(name), r.CallsOfPod(name)...); len(ids) != 0 {
			t.Errorf("%q: %q", name, ids)
		}
	}
	for n := range maxPods + 5 {
		uid := state.PodUID(fmt.Sprint(n))
		c.Pod, c.Of.Mounts = uid, map[state.PodUID]state.Mount{uid: {MountSpec: state.MountSpec{Pod: state.Pod{UID: uid, Namespace: "n", Name: string(uid)}}}}
		r.Record(c)
	}
	if e := r.volumes["d^h"]; len(e.Value.(*kept).pods) != maxPods {
		t.Errorf("%d pods are kept", len(e.Value.(*kept).pods))
	}
}
