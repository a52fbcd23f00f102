package manager

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Whoever is told of a call knows an answer without the effect from a failure,
// and need not read its text.
func TestAnEndedCallSaysThatItHadNoEffect(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"no effect": {fmt.Errorf("%w: nothing is mounted", ErrNoEffect), true},
		"a failure": {errors.New("answered OK without the effect"), false},
	} {
		var got EndedCall
		l := &loop{cfg: &Config{OnCall: func(c EndedCall) { got = c }}, volumes: map[state.VolumeID]*volume{"d^v": {record: &state.Volume{}}}}
		s := &start{id: "d^v", op: plan.Op{Kind: plan.Expand}, begun: state.Volume{Spec: &state.Spec{}}, driver: &driver{}}
		l.tell(s, state.AsCallError("NodeExpandVolume", tt.err), time.Now(), 0)
		if got.NoEffect != tt.want || got.Error == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
