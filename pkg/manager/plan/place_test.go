package plan

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Neither stage nor mount is begun at a path that another volume has. A call that has begun is
// repeated, and another pod's mount does not wait.
func TestAPathThatAnotherVolumeHasIsWaitedFor(t *testing.T) {
	w := groupWish(map[state.PodUID]int64{"a": 0, "b": 0})
	free := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	staged, _, _ := settle(t, w, state.Volume{ID: "d^h"}, free)
	staged.Mounts = nil
	both := staged
	both.Mounts = map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering}, MountSpec: w.Pods["a"].MountSpec}}
	staging := Begin(state.Volume{ID: "d^h"}, Op{Kind: Stage}, w, free)
	for what, tc := range map[string]struct {
		v     state.Volume
		taken state.PodUID
		want  Op
	}{
		"stage":               {v: state.Volume{ID: "d^h", Spec: w.Spec}, taken: ""},
		"stage that began":    {v: staging, taken: "", want: Op{Kind: Stage}},
		"mount":               {v: staged, taken: "a", want: Op{Kind: Publish, Pod: "b"}},
		"mount that began":    {v: both, taken: "a", want: Op{Kind: Publish, Pod: "a"}},
		"mount of the second": {v: staged, taken: "b", want: Op{Kind: Publish, Pod: "a"}},
	} {
		f := free
		f.Taken = map[state.PodUID]state.VolumeID{tc.taken: "d^other"}
		op, held := Next(w, tc.v, f, start)
		if op != tc.want || tc.want == (Op{}) && (held.Code != PathTaken || held.Step != Stage) {
			t.Errorf("%s: %v, held %+v", what, op, held)
		}
	}
}
