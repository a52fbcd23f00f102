package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// answer is a driver's failure of an outcome.
func answer(o state.Outcome, call, code string) fault {
	return fault{err: &state.CallError{Outcome: o, Call: call, Code: code, Err: errors.New("told to")}}
}

// times is f for the first n calls that begin with a prefix.
func times(n int, prefix string, f fault) func(string) fault {
	return func(call string) fault {
		if n == 0 || !strings.HasPrefix(call, prefix) {
			return fault{}
		}
		n--
		return f
	}
}

// A pod that comes while the last one leaves: what is staged stays if the
// removal of it has not begun, and is staged anew if it has.
// Items: A11, N-52.
func TestAPodThatComesWhileTheLastOneLeaves(t *testing.T) {
	for slow, want := range map[string][]string{
		"Unpublish": {"Unpublish d^v a", "Publish d^v b"},
		"Unstage":   {"Unpublish d^v a", "Unstage d^v", "Stage d^v", "Publish d^v b"},
	} {
		t.Run(slow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				l := live(t, h, d)
				l.up(h)
				l.SetPod(podWant("a", "v"))
				mounted(t, l, "a")
				before := len(h.calls())
				h.fails(times(1, slow, fault{takes: time.Minute}))
				l.RemovePod("a")
				synctest.Wait()
				l.SetPod(podWant("b", "v"))
				mounted(t, l, "b")
				rest()
				equal(t, "calls", h.calls()[before:], want)
			})
		})
	}
}

// A volume whose unstage fails stays in use, however long, and says why.
// Items: A24, N-61.
// Faults: A014.
func TestAVolumeIsInUseUntilItsUnstageSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Unstage") {
				return answer(state.Failed, "NodeUnstageVolume", "Internal")
			}
			return fault{}
		})
		l.RemovePod("a")
		for range 24 {
			rest()
			v, _ := l.Volume("d^v")
			if r := v.Volume.Stage.Retry(); len(l.GetVolumesInUse()) != 1 || r.Code != "Internal" || r.Error != "told to" || v.Held.Step != plan.Unstage {
				t.Fatalf("in use: %v, %+v", l.GetVolumesInUse(), v)
			}
		}
		h.fails(nil)
		rest()
		if len(l.GetVolumesInUse()) != 0 || !h.clean() {
			t.Errorf("in use after the unstage: %v", l.GetVolumesInUse())
		}
	})
}

// What a shorter report leaves out is not mounted until it is reported again;
// what is mounted stays.
// Items: A25.
func TestAShorterReportOfVolumesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.InUseHandshake = true })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "w"))
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^v"})
		mounted(t, l, "a")
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^w"})
		mounted(t, l, "b")
		before := len(h.calls())
		l.SetPod(podWant("c", "x"))
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^w"})
		rest()
		equal(t, "calls for what was not reported", h.calls()[before:], nil)
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^w", "d^x"})
		mounted(t, l, "c")
		if h.took["Unpublish"]+h.took["Unstage"] != 0 {
			t.Errorf("calls: %v", h.calls())
		}
	})
}

// Items: A27, A29.
func TestWaitsForManyPodsAndForNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
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

// What a restart does with what a pod has, by whether the sources have spoken,
// whether they list the pod, and whether its containers have stopped.
// Items: B09, B10, E02, E04.
func TestWhichPodsKeepWhatTheyHaveAtTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		synced, listed, stopped, kept bool
	}{
		"not spoken, not listed":        {kept: true},
		"not spoken, running":           {listed: true, kept: true},
		"not spoken, stopped":           {listed: true, stopped: true, kept: true},
		"spoken, not listed":            {synced: true},
		"spoken, running":               {synced: true, listed: true, kept: true},
		"spoken, terminated long since": {synced: true, listed: true, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				l := live(t, h, d)
				l.up(h)
				l.SetPod(podWant("a", "v"))
				mounted(t, l, "a")
				_ = l.stop()
				l = live(t, h, d, sources("s"))
				l.up(h)
				if tc.listed {
					p := podWant("a", "v")
					p.Stopped = tc.stopped
					l.SetPod(p)
				}
				if tc.synced {
					l.SourceSynced("s")
				}
				rest()
				if kept := !h.clean(); kept != tc.kept {
					t.Errorf("kept: %v, want %v", kept, tc.kept)
				}
			})
		})
	}
}

// Whatever is said of other pods meanwhile, a mount in flight goes on.
// Items: B13.
func TestAMountInFlightGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		h.fails(times(1, "Publish", fault{takes: time.Minute}))
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		l.SetPod(podWant("b", "w"))
		l.RemovePod("b")
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		rest()
		if got := h.took["Publish"]; slices.Contains(h.calls(), "Unpublish d^v a") || got < 1 || h.published["/pods/a/v"] == "" {
			t.Errorf("calls: %v", h.calls())
		}
	})
}

// A call that is refused or not answered three times, and then succeeds.
// Items: C02, C03, C15.
func TestFailuresThatEnd(t *testing.T) {
	for name, f := range map[string]fault{
		"refused":  answer(state.Refused, "NodeStageVolume", "InvalidArgument"),
		"in doubt": answer(state.Uncertain, "NodeStageVolume", "DeadlineExceeded"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				h.fails(times(3, "Stage", f))
				l := live(t, h, d)
				l.up(h)
				at := time.Now()
				l.SetPod(podWant("a", "v"))
				mounted(t, l, "a")
				if took := time.Since(at); h.took["Stage"] != 4 || took < 3500*time.Millisecond {
					t.Errorf("%d calls in %v, want 4 with growing pauses", h.took["Stage"], took)
				}
				l.RemovePod("a")
				rest()
				l.SetPod(podWant("b", "v"))
				mounted(t, l, "b")
				l.RemovePod("b")
				rest()
				if h.took["Stage"] != 5 || h.took["Unstage"] != 2 || !h.clean() {
					t.Errorf("calls: %v", h.took)
				}
			})
		})
	}
}

// A pod that goes before its driver has come is nobody's business.
// Items: C18.
func TestAPodThatGoesBeforeItsDriverCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.SetPod(podWant("a", "v"))
		rest()
		l.RemovePod("a")
		l.up(h)
		rest()
		equal(t, "calls", h.calls(), nil)
		if len(d.records(t)) != 0 {
			t.Errorf("records: %v", d.records(t))
		}
	})
}

// After a reboot the calls for what there was are refused: the record stays
// until the pod goes, and then everything is taken back by it.
// Items: C27, E06, E07, E12.
func TestRefusalsAfterARestartKeepTheRecord(t *testing.T) {
	for _, mode := range []state.Mode{state.Filesystem, state.Block} {
		for _, verb := range []string{"Stage", "Publish"} {
			t.Run(string(mode)+" "+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, d := newHouse(t), newDisk()
					want := podWant("a", "v")
					want.Volumes[0].Spec.Mode = mode
					l := live(t, h, d)
					l.up(h)
					l.SetPod(want)
					mounted(t, l, "a")
					_ = l.stop()
					clear(h.published)
					clear(h.staged)
					h.fails(func(call string) fault {
						if strings.HasPrefix(call, verb) {
							return answer(state.Refused, "Node"+verb+"Volume", "InvalidArgument")
						}
						return fault{}
					})
					before := len(h.calls())
					l = live(t, h, d, boot("boot-2"), sources("s"))
					l.up(h)
					l.SetPod(want)
					l.SourceSynced("s")
					rest()
					if v, ok := d.records(t)["d^v"]; !ok || v.Mounts["a"].Target == "" || len(l.GetVolumesInUse()) != 1 {
						t.Errorf("the record: %+v", v)
					}
					l.RemovePod("a")
					rest()
					calls := h.calls()[before:]
					equal(t, "the last calls", calls[len(calls)-2:], []string{"Unpublish d^v a", "Unstage d^v"})
					if !h.clean() || len(d.records(t)) != 0 {
						t.Errorf("left: %v", d.records(t))
					}
				})
			})
		}
	}
}

// Volumes of two pods that both went, an inline volume and a built-in one that
// went, while no daemon ran: each is taken back from its record alone.
// Items: E02, E03, E14, E16, N-77.
// Faults: A059.
func TestWhatWentWhileNoDaemonRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "v"))
		p := podWant("c", "inline", "built")
		p.Volumes[0].Spec.Ephemeral, p.Volumes[1].Spec.Builtin = true, true
		p.Volumes[1].ID, p.Volumes[1].Spec.Driver = state.SharedID("b", "built"), "b"
		kind := DriverInfo{Name: "b", Builtin: true}
		l.DriverUp(kind, h)
		l.SetPod(p)
		for _, pod := range []string{"a", "b", "c"} {
			mounted(t, l, pod)
		}
		_ = l.stop()
		before := len(h.calls())
		l = live(t, h, d, sources("s"))
		l.up(h)
		l.DriverUp(kind, h)
		l.SourceSynced("s")
		rest()
		calls := h.calls()[before:]
		slices.Sort(calls)
		equal(t, "calls", calls, []string{"Unpublish b^built c", "Unpublish d^inline c", "Unpublish d^v a", "Unpublish d^v b", "Unstage d^v"})
		if !h.clean() || len(d.records(t)) != 0 {
			t.Errorf("left: %v", d.records(t))
		}
	})
}

// An attachment that goes while its volume is being staged: no more calls until
// it is there again, and what is known is not lost.
// Items: A21, A22.
// Faults: A037, A048.
func TestAnAttachmentThatGoesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		h.fails(func(call string) fault { return answer(state.Uncertain, "NodeStageVolume", "Unavailable") })
		held := podWant("a", "v")
		held.Volumes[0].Hold = "waiting for VolumeAttachment csi-1"
		l := live(t, h, d)
		l.up(h)
		l.SetPod(held)
		rest()
		equal(t, "calls before it is attached", h.calls(), nil)
		l.SetPod(podWant("a", "v"))
		rest()
		l.SetPod(held)
		synctest.Wait()
		before := len(h.calls())
		rest()
		equal(t, "calls while it is not attached", h.calls()[before:], nil)
		if v, _ := l.Volume("d^v"); v.Volume.Stage.Phase != state.Entering || !strings.Contains(v.Held.Reason, "csi-1") {
			t.Errorf("%+v", v)
		}
		h.fails(nil)
		at := time.Now()
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		if took := time.Since(at); took > time.Second {
			t.Errorf("staged %v after it was attached again", took)
		}
	})
}

// Which calls are made at once: those of different volumes, and those of kinds
// that each pod has for itself; those of one volume are not.
// Items: D01, D02, D03, D05, D07, D08, D12, N-21.
func TestWhichCallsAreMadeAtOnce(t *testing.T) {
	own := func(pod string) state.PodWant {
		p := podWant(pod, "tmp")
		p.Volumes[0].ID, p.Volumes[0].Spec.Builtin = state.PodVolumeID("d", state.PodUID(pod), "tmp"), true
		return p
	}
	block := func(pod string) state.PodWant {
		p := podWant(pod, "v")
		p.Volumes[0].Spec.Mode = state.Block
		return p
	}
	for name, tc := range map[string]struct {
		pods []state.PodWant
		most int
	}{
		"two volumes":              {[]state.PodWant{podWant("a", "v"), podWant("b", "w")}, 2},
		"one volume of two pods":   {[]state.PodWant{podWant("a", "v"), podWant("b", "v")}, 1},
		"one device of two pods":   {[]state.PodWant{block("a"), block("b")}, 1},
		"two pods' own volumes":    {[]state.PodWant{own("a"), own("b")}, 2},
		"two volumes of one pod":   {[]state.PodWant{podWant("a", "v", "w")}, 2},
		"one volume, and a second": {[]state.PodWant{podWant("a", "v"), podWant("b", "v", "w")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				most := 0
				h.fails(func(string) fault { // the house itself fails the test for two calls of one volume
					most = max(most, len(h.inFlight))
					return fault{takes: time.Second}
				})
				l := live(t, h, d)
				l.DriverUp(DriverInfo{Name: "d", Stage: true, Attach: true, MountsTarget: true}, h)
				for _, p := range tc.pods {
					l.SetPod(p)
				}
				for _, p := range tc.pods {
					mounted(t, l, p.Pod.Name)
				}
				for _, p := range tc.pods {
					l.RemovePod(p.Pod.UID)
				}
				rest()
				if most != tc.most || !h.clean() {
					t.Errorf("%d calls at once, want %d", most, tc.most)
				}
			})
		})
	}
}

// panics is a driver whose code is broken for one volume.
type panics struct{ *house }

func (p panics) Stage(ctx context.Context, v state.Volume) error {
	if v.ID == "d^bad" {
		panic("index out of range")
	}
	return p.house.Stage(ctx, v)
}

// Items: C31.
func TestAPanicIsAnErrorOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
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

// Items: A28.
func TestAWaitThatEndsNamesWhatIsMissingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish d^3") {
				return answer(state.Failed, "NodePublishVolume", "Internal")
			}
			return fault{}
		})
		l := live(t, h, d)
		l.up(h)
		p := podWant("a", "1-ready", "2-detached", "3-fails")
		p.Volumes[1].Hold = "waiting for VolumeAttachment csi-2"
		p.Volumes = append(p.Volumes, state.VolumeWant{Names: []string{"4-unknown"}, Problem: "claim n/c: not found"})
		l.SetPod(p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := l.WaitForAttachAndMount(ctx, "a")
		if err == nil {
			t.Fatal("it is said to be mounted")
		}
		at := 0
		for _, want := range []string{"2-detached", "csi-2", "3-fails", "NodePublishVolume Internal: told to", "4-unknown", "claim n/c: not found"} {
			i := strings.Index(err.Error()[at:], want)
			if i < 0 {
				t.Fatalf("no %q after the first %d bytes of %v", want, at, err)
			}
			at += i
		}
		if strings.Contains(err.Error(), "1-ready") {
			t.Errorf("what is mounted is named: %v", err)
		}
	})
}

// A publish without an answer keeps a volume for one pod from the next one.
// Items: K03.
func TestAPublishInDoubtKeepsAVolumeForOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		alone := func(pod string) state.PodWant {
			p := podWant(pod, "v")
			p.Volumes[0].Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
			return p
		}
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish") {
				return answer(state.Uncertain, "NodePublishVolume", "DeadlineExceeded")
			}
			return fault{}
		})
		l := live(t, h, d)
		l.up(h)
		l.SetPod(alone("a"))
		rest()
		l.SetPod(alone("b"))
		rest()
		if slices.Contains(h.calls(), "Publish d^v b") {
			t.Errorf("calls: %v", h.calls())
		}
		h.fails(nil)
		l.RemovePod("a")
		mounted(t, l, "b")
		if i, j := slices.Index(h.calls(), "Unpublish d^v a"), slices.Index(h.calls(), "Publish d^v b"); i < 0 || j < i {
			t.Errorf("calls: %v", h.calls())
		}
	})
}
