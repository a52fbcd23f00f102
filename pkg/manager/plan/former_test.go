package plan

import (
	"fmt"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The record of a volume whose pods come and go keeps a bounded number of former targets, the last among them; what it was
// made from stays as it is.
func TestFormerTargetsAreBounded(t *testing.T) {
	var v state.Volume
	for i := range 2 * mostFormer {
		pod, target := state.PodUID(fmt.Sprintf("p%03d", i)), fmt.Sprintf("/pods/%d", i)
		before := len(v.Former)
		next := withFormer(v, pod, target)
		if want := min(i+1, mostFormer); len(next) != want || next[pod] != target || len(v.Former) != before {
			t.Fatalf("after %d pods: %d targets, want %d; that of the last is %q; before there were %d", i+1, len(next), want, next[pod], len(v.Former))
		}
		v.Former = next
	}
	for pod := range v.Former {
		v.Former = withoutFormer(v.Former, pod)
	}
	if v.Former != nil {
		t.Errorf("left: %v", v.Former)
	}
}
