package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// answer is a driver's failure with an outcome.
func answer(o state.Outcome, call, code string) fault {
	return fault{err: &state.CallError{Outcome: o, Call: call, Code: code, Err: errors.New("told to")}}
}

// times applies f to the first n calls that begin with a prefix.
func times(n int, prefix string, f fault) func(string) fault {
	return func(call string) fault {
		if n == 0 || !strings.HasPrefix(call, prefix) {
			return fault{}
		}
		n--
		return f
	}
}

// Items: A27, A29, C16.
func TestWaitsForManyPodsAndForNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("none"))
		at := time.Now()
		if err := errors.Join(l.WaitForAttachAndMount(t.Context(), "none"), l.WaitForAllPodsUnmount(t.Context(), nil)); err != nil || time.Since(at) != 0 {
			t.Errorf("a pod without volumes, and no pods: %v after %v", err, time.Since(at))
		}
		for _, pod := range []string{"a", "b", "c"} {
			l.SetPod(podWant(pod, "v-"+pod))
			mounted(t, l, pod)
		}
		h.fails(func(call string) fault {
			if call == "Unpublish d^v-b b" {
				return answer(state.Failed, "NodeUnpublishVolume", "Internal")
			}
			return fault{}
		})
		for _, pod := range []state.PodUID{"a", "b", "c"} {
			l.RemovePod(pod)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := l.WaitForAllPodsUnmount(ctx, []state.PodUID{"a", "b", "c"})
		if err == nil || !strings.Contains(err.Error(), "pod n/b") || strings.Contains(err.Error(), "n/a") || strings.Contains(err.Error(), "n/c") {
			t.Errorf("one of three stays: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := l.WaitForAllPodsUnmount(ctx, []state.PodUID{"b"}); !errors.Is(err, context.Canceled) {
			t.Errorf("a wait given up: %v", err)
		}
		h.fails(nil)
		if err := l.WaitForAllPodsUnmount(t.Context(), []state.PodUID{"a", "b", "c"}); err != nil {
			t.Error(err)
		}
	})
}

// panics is a driver whose code panics for one volume.
type panics struct{ *fakeNode }

func (p panics) Stage(ctx context.Context, v state.Volume) error {
	if v.ID == "d^bad" {
		panic("index out of range")
	}
	return p.fakeNode.Stage(ctx, v)
}

// Items: C31.
func TestAPanicIsAnErrorOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, panics{h})
		l.SetPod(podWant("a", "bad"))
		l.SetPod(podWant("b", "v"))
		mounted(t, l, "b")
		rest()
		s, _ := l.Pod("a")
		if r := s.Volumes[0].Retry; r.Attempts < 3 || r.Error != "panic: index out of range" || r.Call != "NodeStageVolume" {
			t.Errorf("%+v", r)
		}
		l.RemovePod("a")
		l.RemovePod("b")
		rest()
		if !h.clean() || len(d.records(t)) != 0 {
			t.Errorf("left: %v", d.records(t))
		}
	})
}
