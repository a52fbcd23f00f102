//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// NodeStageVolume and NodeUnstageVolume fail while pods come and go, some with codes that
// end a call and some with codes that leave its effect uncertain. The strict driver checks
// that a volume is unstaged before it is staged again, and that nothing is left.
//
// Items: C04.
func TestScenariosOfStageErrors(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-stage")
	const stage, unstage = "NodeStageVolume", "NodeUnstageVolume"
	final, doubt := uint32(codes.Internal), uint32(codes.DeadlineExceeded)
	for name, tc := range map[string]struct {
		fault csistrict.Fault
		goes  bool // the pod goes before it has its volume
		again bool // a second pod comes while the volume is unstaged
	}{
		// Scenarios: U-25.
		"none": {},
		// Scenarios: U-26.
		"final": {fault: csistrict.Fault{Call: stage, Code: final, Effect: csistrict.EffectNone, Times: 3}},
		// Scenarios: U-27.
		"doubt": {fault: csistrict.Fault{Call: stage, Code: doubt, Effect: csistrict.EffectNone, Times: 3}},
		// Scenarios: U-28.
		"doubt-goes": {fault: csistrict.Fault{Call: stage, Code: doubt}, goes: true},
		// Scenarios: U-29.
		"final-goes": {fault: csistrict.Fault{Call: stage, Code: final}, goes: true},
		// Scenarios: U-30.
		"again": {again: true},
		// Scenarios: U-31.
		"unstage-final": {fault: csistrict.Fault{Call: unstage, Code: final, Effect: csistrict.EffectNone, Times: 2}, again: true},
		// Scenarios: U-32.
		"unstage-doubt": {fault: csistrict.Fault{Call: unstage, Code: doubt, Times: 2}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, claim := unattached("stage-"+name+".test", nil), "stage-"+name
			if tc.fault.Call != "" {
				tc.fault.ID = "told"
				c.script.Faults = []csistrict.Fault{tc.fault}
			}
			s := begin(t, n, c)
			s.static(claim, nil)
			pod := claim
			if tc.goes {
				createPod(t, podWith(n.name, pod, fromClaim(claim)))
				s.n.eventually("the call fails twice", func() bool { return s.ended(stage) > 1 })
				s.down(pod)
				if s.count(stage, csistrict.EventEnd) > 0 || s.count(unstage, csistrict.EventEnd) != 1 {
					t.Errorf("staged %d times, unstaged %d times", s.count(stage, csistrict.EventEnd), s.count(unstage, csistrict.EventEnd))
				}
				return
			}
			s.up(pod, fromClaim(claim))
			file := filepath.Join(s.n.at(pod, "data"), "f")
			must(t, os.WriteFile(file, []byte("kept"), 0o600))
			stages := 1
			if tc.again {
				deletePod(t, pod)
				s.n.eventually("the volume is unstaged", func() bool { return s.count(unstage, csistrict.EventBegin) > 0 })
				pod, stages = claim+"-next", 2
				s.up(pod, fromClaim(claim))
				s.n.hasFile(filepath.Join(s.n.at(pod, "data"), "f"), "kept")
			}
			s.down(pod)
			if got := s.count(stage, csistrict.EventEnd); got != stages {
				t.Errorf("staged %d times, want %d", got, stages)
			}
			if got := s.count(unstage, csistrict.EventEnd); got != stages {
				t.Errorf("unstaged %d times, want %d", got, stages)
			}
			if got := s.count(tc.fault.Call, csistrict.EventFault); got != tc.fault.Times {
				t.Errorf("%d faults, want %d", got, tc.fault.Times)
			}
		})
	}
}

// ended returns how often the call was answered, with any code.
func (s *shared) ended(call string) (n int) {
	s.t.Helper()
	events, err := csistrict.ReadTranscript(s.dir)
	must(s.t, err)
	for _, e := range events {
		if e.Event == csistrict.EventEnd && e.Call == call {
			n++
		}
	}
	return n
}
