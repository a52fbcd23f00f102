package plan

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestAnOperationIsPacedByWhatItChanges(t *testing.T) {
	failed := func(attempts int) state.Fact { return state.Fact{Failed: &state.Retry{Attempts: attempts}} }
	v := state.Volume{
		Attach: failed(1), Stage: failed(2), ExpandFailed: &state.Retry{Attempts: 3},
		Mounts: map[state.PodUID]state.Mount{"a": {Fact: failed(4)}, "b": {Fact: failed(5)}},
	}
	for op, want := range map[Op]int{
		{Kind: Attach}: 1, {Kind: Detach}: 1, {Kind: Stage}: 2, {Kind: Unstage}: 2, {Kind: Expand, Pod: "a"}: 3,
		{Kind: Publish, Pod: "a"}: 4, {Kind: Republish, Pod: "a"}: 4, {Kind: Unpublish, Pod: "b"}: 5, {}: 0,
	} {
		if got := op.Retry(v).Attempts; got != want {
			t.Errorf("%s: paced by %d, want %d", op, got, want)
		}
	}
}
