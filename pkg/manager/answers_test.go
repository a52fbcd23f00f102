package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stubborn ignores its context.
type stubborn struct {
	*fakeNode
	release chan struct{}
}

func (s stubborn) Stage(context.Context, state.Volume) error {
	<-s.release
	return nil
}

func TestACallThatDoesNotHeedTheEndIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		s := stubborn{h, make(chan struct{})}
		l := live(t, h, d)
		l.DriverUp(DriverInfo{Name: "d", Stage: true}, s)
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		at := time.Now()
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took != endGrace {
			t.Errorf("Run ended after %v, want %v", took, endGrace)
		}
		if v := d.records(t)["d^v"]; v.Stage.Phase != state.Entering {
			t.Errorf("the journal says %+v", v.Stage)
		}
		close(s.release)
	})
}

func TestTheEndWaitsForCallsThatHeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(string) fault { return fault{takes: endGrace / 2} })
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		if err := l.stop(); err != nil {
			t.Error(err)
		}
		if v := d.records(t)["d^v"]; v.Stage.Phase != state.Present {
			t.Errorf("the last answer is not in the journal: %+v", v.Stage)
		}
	})
}

func TestAJournalThatCannotBeReadOrWrittenIsRunsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		m, err := New(Config{Store: unreadable{d}, Kernel: h, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Run(t.Context()); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "load the journal") {
			t.Errorf("%v", err)
		}
		l := live(t, h, d)
		l.up(h)
		h.fails(func(string) fault { return fault{takes: time.Second} })
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		d.fail(0) // once the intent of all calls is written
		mounted(t, l, "a")
		if err := l.stop(); !errors.Is(err, errDisk) {
			t.Errorf("%v", err)
		}
	})
}

type unreadable struct{ *disk }

func (unreadable) Load(context.Context) (state.Loaded, error) { return state.Loaded{}, errDisk }

// TestWhatACallIsCalledWhereItsDriverDoesNotSay: a failure has the CSI name of the verb.
func TestWhatACallIsCalledWhereItsDriverDoesNotSay(t *testing.T) {
	for k, want := range map[plan.Kind]string{
		plan.Attach: "ControllerPublishVolume", plan.Detach: "ControllerUnpublishVolume", plan.Stage: "NodeStageVolume",
		plan.Unstage: "NodeUnstageVolume", plan.Publish: "NodePublishVolume", plan.Republish: "NodePublishVolume",
		plan.Unpublish: "NodeUnpublishVolume", plan.Expand: "NodeExpandVolume",
	} {
		if got := rpc(k); got != want {
			t.Errorf("%v: %s, want %s", k, got, want)
		}
	}
}

// seen is a kernel that shows one thing everywhere.
type seen struct {
	storage
	state.Seen
	err error
}

func (s seen) Look(context.Context, string) (state.Seen, error) { return s.Seen, s.err }

// Items: N-69, N-101, N-64.
// Faults: A033.
func TestWhatTheKernelShowsDecidesAfterEachCall(t *testing.T) {
	dir, mount := state.Seen{Exists: true}, state.Seen{Exists: true, Mounted: true}
	block := state.Seen{Exists: true, BlockDevice: true}
	for name, tc := range map[string]struct {
		op     plan.Op
		info   DriverInfo
		mode   state.Mode
		kernel seen
		size   int64
		want   string // in the error; "" for no error
	}{
		"stage made":                    {op: plan.Op{Kind: plan.Stage}, kernel: seen{Seen: dir}},
		"stage made nothing":            {op: plan.Op{Kind: plan.Stage}, want: "there is nothing at /stage"},
		"publish mounted":               {op: plan.Op{Kind: plan.Publish, Pod: "a"}, info: DriverInfo{MountsTarget: true}, kernel: seen{Seen: mount}},
		"publish made a directory":      {op: plan.Op{Kind: plan.Publish, Pod: "a"}, info: DriverInfo{MountsTarget: true}, kernel: seen{Seen: dir}, want: "nothing is mounted at /target"},
		"a kind that makes a directory": {op: plan.Op{Kind: plan.Publish, Pod: "a"}, kernel: seen{Seen: dir}},
		"publish made a device":         {op: plan.Op{Kind: plan.Publish, Pod: "a"}, info: DriverInfo{MountsTarget: true}, mode: state.Block, kernel: seen{Seen: block}},
		"publish made a plain file":     {op: plan.Op{Kind: plan.Publish, Pod: "a"}, info: DriverInfo{MountsTarget: true}, mode: state.Block, kernel: seen{Seen: dir}, want: "there is no block device at /target"},
		"renewal lost the mount":        {op: plan.Op{Kind: plan.Republish, Pod: "a"}, info: DriverInfo{MountsTarget: true}, kernel: seen{Seen: dir}, want: "nothing is mounted"},
		"unpublish done":                {op: plan.Op{Kind: plan.Unpublish, Pod: "a"}},
		"unpublish left a directory":    {op: plan.Op{Kind: plan.Unpublish, Pod: "a"}, kernel: seen{Seen: dir}},
		"unpublish left the mount":      {op: plan.Op{Kind: plan.Unpublish, Pod: "a"}, kernel: seen{Seen: mount}, want: "/target is still a mount point"},
		"unstage left the mount":        {op: plan.Op{Kind: plan.Unstage}, kernel: seen{Seen: mount}, want: "/stage is still a mount point"},
		"the kernel does not say":       {op: plan.Op{Kind: plan.Unpublish, Pod: "a"}, kernel: seen{err: errDisk}, want: "look at /target after the call: disk is gone"},
		"attach shows nowhere":          {op: plan.Op{Kind: plan.Attach}, kernel: seen{err: errDisk}},
		"detach shows nowhere":          {op: plan.Op{Kind: plan.Detach}, kernel: seen{err: errDisk}},
		"expanded":                      {op: plan.Op{Kind: plan.Expand, Pod: "a", SizeBytes: 5}, size: 5},
		"expanded further":              {op: plan.Op{Kind: plan.Expand, Pod: "a", SizeBytes: 5}, size: 9},
		"expanded, not said how far":    {op: plan.Op{Kind: plan.Expand, Pod: "a", SizeBytes: 5}},
		"expanded too little":           {op: plan.Op{Kind: plan.Expand, Pod: "a", SizeBytes: 5}, size: 4, want: "the volume has 4 bytes, 5 were requested"},
	} {
		t.Run(name, func(t *testing.T) {
			v := state.Volume{
				Spec:   &state.Spec{StagePath: "/stage", Mode: tc.mode},
				Mounts: map[state.PodUID]state.Mount{"a": {MountSpec: state.MountSpec{Target: "/target"}}},
			}
			r := plan.Result{SizeBytes: tc.size}
			err := caller{cfg: &Config{Kernel: tc.kernel}, info: &tc.info}.verify(t.Context(), v, tc.op, &r)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err != nil && tc.kernel.err == nil && !errors.Is(err, ErrNoEffect) {
				t.Errorf("%v is not ErrNoEffect", err)
			}
		})
	}
}

func TestPodsAndChangesOnTheBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		synctest.Wait()
		changed := l.Changed()
		select {
		case <-changed:
			t.Error("a change although nothing happened")
		default:
		}
		l.SetPod(podWant("b", "v"))
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("none"))
		<-changed
		mounted(t, l, "a")
		mounted(t, l, "b")
		h.fails(func(string) fault { return fault{err: errors.New("busy")} })
		l.RemovePod("b")
		rest()
		var got []string
		for _, p := range l.Pods() {
			got = append(got, fmt.Sprintf("%s listed=%v ready=%v %d", p.Pod.Name, p.Listed, p.Ready, len(p.Volumes)))
		}
		equal(t, "pods", got, []string{"a listed=true ready=true 1", "b listed=false ready=false 1", "none listed=true ready=true 0"})
		s, _ := l.Pod("b")
		if v := s.Volumes[0]; v.Mounted || v.Phase != state.Leaving || v.Step != plan.Unpublish || v.Retry.Error != "busy" || s.Pod.Namespace != "n" {
			t.Errorf("what a pod that has left still has: %+v", s)
		}
		a, _ := l.Pod("a")
		if v := a.Volumes[0]; !v.Mounted || v.Step != plan.None || v.BlockedBy != "" {
			t.Errorf("another pod's removal shows where it does not matter: %+v", v)
		}
	})
}

// TestAPodIsToldOfTheCallThatItWaitsFor: a volume has one call in flight, for another pod
// perhaps.
// Items: D11, D08.
func TestAPodIsToldOfTheCallThatItWaitsFor(t *testing.T) {
	v := VolumeStatus{Volume: state.Volume{
		Needs: state.Needs{Attach: true, Stage: true}, ExpandFailed: &state.Retry{Attempts: 1},
		Attach: state.Fact{Failed: &state.Retry{Attempts: 2}}, Stage: state.Fact{Failed: &state.Retry{Attempts: 3}},
	}}
	for _, tc := range []struct {
		call     plan.Op
		held     plan.Held
		attempts int
		step     string
		blocked  string
	}{
		{call: plan.Op{Kind: plan.Attach}, attempts: 2, step: "Attach"},
		{call: plan.Op{Kind: plan.Unstage}, attempts: 3, step: "Unstage"},
		{call: plan.Op{Kind: plan.Expand, Pod: "a"}, attempts: 1, step: "Expand"},
		{call: plan.Op{Kind: plan.Unpublish, Pod: "b"}, step: "Unpublish", blocked: "another call for the volume is in flight: Unpublish for pod b"},
		{held: plan.Held{Step: plan.Publish, Pod: "a", Code: plan.Pause, Reason: "r"}, step: "Publish", blocked: "r"},
		{held: plan.Held{Step: plan.Unpublish, Pod: "b", Code: plan.Pause, Reason: "r"}, step: "Unpublish", blocked: "Unpublish for pod b comes first: r"},
	} {
		v.Call, v.Held = tc.call, tc.held
		s := podVolume("a", wantOf("a", "v"), &v)
		if s.Step.String() != tc.step || s.BlockedBy != tc.blocked || s.Retry.Attempts != tc.attempts {
			t.Errorf("%+v %+v: step %q, blocked by %q, %d attempts", tc.call, tc.held, s.Step, s.BlockedBy, s.Retry.Attempts)
		}
	}
}

func TestAStoppedPodHasNothingMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.DriverDown("d", "for a while")
		p := podWant("a", "v")
		p.Stopped = true
		l.SetPod(p)
		synctest.Wait()
		if m := l.GetMountedVolumesForPod("a"); len(m) != 0 || !l.HasPossiblyMountedVolumesForPod("a") {
			t.Errorf("%v", m)
		}
		l.up(h)
		gone(t, l, "a")
		if s, ok := l.Pod("a"); !ok || s.Ready || !s.Listed || len(s.Volumes) != 0 {
			t.Errorf("%+v", s)
		}
	})
}
