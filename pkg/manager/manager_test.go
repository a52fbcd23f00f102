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

// Items: A02, A09, A10, C01, N-53, N-54, N-62, N-104.
func TestAVolumeComesAndGoesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.DriverUp(DriverInfo{Name: "d", Stage: true, Attach: true, MountsTarget: true}, h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "v"))
		mounted(t, l, "a")
		mounted(t, l, "b")
		l.RemovePod("a")
		l.RemovePod("b")
		rest()
		equal(t, "calls", h.calls(), []string{
			"Attach d^v", "Stage d^v", "Publish d^v a", "Publish d^v b",
			"Unpublish d^v a", "Unpublish d^v b", "Unstage d^v", "Detach d^v",
		})
		if !h.clean() || len(d.records(t)) != 0 || len(l.Volumes()) != 0 || len(l.Pods()) != 0 {
			t.Errorf("left: records %v, volumes %v, pods %v", d.records(t), l.Volumes(), l.Pods())
		}
	})
}

func TestAPodsMountPaysOneDurableWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		synctest.Wait()
		before := d.count()
		var atPublish int
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish") {
				atPublish = d.count()
			}
			return fault{}
		})
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		if atPublish-before != 1 {
			t.Errorf("%d durable writes before the publish call, want 1", atPublish-before)
		}
		rest()
		if got := d.records(t)["d^v"]; got.Stage.Phase != state.Present || got.Mounts["a"].Phase != state.Present {
			t.Errorf("an hour later the journal says %+v", got)
		}
	})
}

func TestIntentsOfOneMomentShareOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		for i := range 100 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		synctest.Wait()
		before := d.count()
		h.fails(func(string) fault { return fault{hangs: true} })
		l.up(h)
		synctest.Wait()
		if got := d.count() - before; got != 1 {
			t.Errorf("%d durable writes for what is wanted at one moment, want 1", got)
		}
	})
}

// TestFaultsOfEveryKindEndAsWished: calls fail, lie and lose answers by seed;
// in the end all is mounted, and in the end all is gone.
// Items: D10.
func TestFaultsOfEveryKindEndAsWished(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			h, d := newHouse(t), newDisk()
			h.fails(faultsBySeed(seed))
			l := live(t, h, d)
			l.up(h)
			l.SetPod(podWant("a", "v", "w"))
			l.SetPod(podWant("b", "v"))
			mounted(t, l, "a")
			mounted(t, l, "b")
			if len(h.published) != 3 || len(h.staged) != 2 {
				t.Errorf("seed %d: mounted by its word, and there is %s, staged %s", seed, text(h.published), text(h.staged))
			}
			l.RemovePod("a")
			l.RemovePod("b")
			rest()
			if !h.clean() || len(d.records(t)) != 0 {
				t.Errorf("seed %d: left %s %s, records %v", seed, text(h.published), text(h.staged), d.records(t))
			}
		})
	}
}

// TestCrashAtEveryCommit kills the daemon's memory after each durable write it
// makes, with faults by seed; the next life must leave the host as it is wished.
func TestCrashAtEveryCommit(t *testing.T) {
	for seed := range uint64(20) {
		for stop := range 10 {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				h.fails(faultsBySeed(seed))
				l := live(t, h, d)
				l.up(h)
				d.fail(stop)
				l.SetPod(podWant("a", "v"))
				l.SetPod(podWant("b", "v", "w"))
				time.Sleep(20 * time.Second)
				l.RemovePod("b")
				time.Sleep(20 * time.Second)
				_ = l.stop() // cannot write: what it knows beyond the journal is lost
				synctest.Wait()
				d.fail(-1)
				h.fails(nil)
				next := live(t, h, d)
				next.up(h)
				next.SetPod(podWant("a", "v"))
				mounted(t, next, "a")
				rest()
				if len(h.published) != 1 || len(h.staged) != 1 || h.published["/pods/a/v"] == "" {
					t.Errorf("seed %d, crash after %d writes: there is %s, staged %s", seed, stop, text(h.published), text(h.staged))
				}
				next.RemovePod("a")
				rest()
				if !h.clean() || len(d.records(t)) != 0 {
					t.Errorf("seed %d, crash after %d writes: left %s %s, records %v", seed, stop, text(h.published), text(h.staged), d.records(t))
				}
			})
		}
	}
}

// Items: E01.
func TestARestartRepeatsNoCallOfWhatIsPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v", "w"))
		mounted(t, l, "a")
		rest()
		before := len(h.calls())
		next := live(t, h, d, sources("s")) // as after SIGKILL: the old one is not asked to stop
		next.up(h)
		next.SetPod(podWant("a", "v", "w"))
		next.SourceSynced("s")
		mounted(t, next, "a")
		rest()
		equal(t, "calls of the second life", h.calls()[before:], nil)
		_ = l.stop()
	})
}

func TestWhatVanishedIsMadeAgainAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v", "w"))
		mounted(t, l, "a")
		_ = l.stop()
		delete(h.published, "/pods/a/v")
		before := len(h.calls())
		l = live(t, h, d)
		l.SetPod(podWant("a", "v", "w")) // before the driver, which would undo what nobody wants yet
		l.up(h)
		rest()
		equal(t, "calls of the second life", h.calls()[before:], []string{"Publish d^v a"})
	})
}

// Items: B11, E02, N-61.
// Faults: A002.
func TestARebootRepeatsAllAndCleansWhatIsUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "w"))
		mounted(t, l, "a")
		mounted(t, l, "b")
		_ = l.stop()
		clear(h.published)
		clear(h.staged)
		before := len(h.calls())
		l = live(t, h, d, boot("boot-2"), sources("s"))
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		if ids := l.GetVolumesInUse(); len(ids) != 2 {
			t.Errorf("in use before the driver was asked: %v, want both", ids)
		}
		l.SourceSynced("s")
		rest()
		equal(t, "calls of the second life", h.calls()[before:], []string{"Stage d^v", "Publish d^v a", "Unpublish d^w b", "Unstage d^w"})
	})
}

// Items: E04, E18.
// Faults: A006.
func TestNothingIsRemovedBeforeEverySourceHasSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		_ = l.stop()
		before := len(h.calls())
		l = live(t, h, d, sources("file", "api"))
		l.up(h)
		l.SourceSynced("file")
		rest()
		equal(t, "calls while one source is silent", h.calls()[before:], nil)
		if v, _ := l.Volume("d^v"); !strings.Contains(v.Held.Reason, "not every source") || v.Held.Step != plan.Unpublish {
			t.Errorf("held: %+v", v.Held)
		}
		if l.ReconcilerStatesHasBeenSynced() {
			t.Error("synced although a source is silent")
		}
		l.SourceSynced("api")
		rest()
		equal(t, "calls then", h.calls()[before:], []string{"Unpublish d^v a", "Unstage d^v"})
		if !l.ReconcilerStatesHasBeenSynced() {
			t.Error("not synced")
		}
	})
}

// Items: B08, E05.
func TestAPodThatCannotBeResolvedKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		p := podWant("a")
		p.Volumes = []state.VolumeWant{{Names: []string{"v"}, Problem: "claim n/v: lookup failed"}}
		before := len(h.calls())
		l.SetPod(p)
		rest()
		equal(t, "calls", h.calls()[before:], nil)
		v, _ := l.Volume("d^v")
		if !strings.Contains(v.Held.Reason, "claim n/v: lookup failed") {
			t.Errorf("held: %+v", v.Held)
		}
		s, _ := l.Pod("a")
		if s.Ready || len(s.Volumes) != 1 || s.Volumes[0].BlockedBy != "claim n/v: lookup failed" || !s.Volumes[0].Unresolved() || s.Volumes[0].ID != "d^v" || !s.Volumes[0].Mounted || s.Volumes[0].HostPath == "" {
			t.Errorf("pod: %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if missing, ok := errors.AsType[*WaitError](l.WaitForAttachAndMount(ctx, "a")); !ok || len(missing.Volumes) != 1 || !strings.Contains(missing.Error(), "lookup failed") {
			t.Errorf("a wait for what it wants: %v", missing)
		}
		p.Stopped = true
		l.SetPod(p)
		rest()
		if !h.clean() {
			t.Error("kept although the pod's containers have ended")
		}
	})
}

// Items: C18, N-31.
// Faults: A048.
func TestADriverThatComesBackEndsEveryPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.SetPod(podWant("a", "v"))
		rest()
		s, _ := l.Pod("a")
		if s.Ready || !strings.Contains(s.Volumes[0].BlockedBy, "driver d has not registered") {
			t.Errorf("pod: %+v", s)
		}
		h.fails(func(string) fault {
			return fault{err: &state.CallError{Outcome: state.Final, Call: "NodeStageVolume", Code: "Unimplemented", Err: errors.New("no")}}
		})
		l.up(h)
		rest()
		equal(t, "calls of a driver that refuses for good", h.calls(), []string{"Stage d^v"})
		h.fails(nil)
		l.DriverDown("d", "its socket is gone")
		synctest.Wait()
		if s, _ := l.Pod("a"); !strings.Contains(s.Volumes[0].BlockedBy, "its socket is gone") {
			t.Errorf("pod: %+v", s)
		}
		at := time.Now()
		l.up(h)
		mounted(t, l, "a")
		if took := time.Since(at); took > time.Second {
			t.Errorf("the volume came %v after its driver", took)
		}
		if ds := l.Drivers(); len(ds) != 1 || ds[0].Generation != 2 || !ds[0].Up || ds[0].Volumes != 1 {
			t.Errorf("drivers: %+v", ds)
		}
	})
}

// Faults: A032.
func TestAnAnswerWithoutTheEffectIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		lies := 2
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish") && lies > 0 {
				lies--
				return fault{lie: true}
			}
			return fault{}
		})
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		s, _ := l.Pod("a")
		if r := s.Volumes[0].Retry; s.Ready || r.Attempts != 1 || !strings.Contains(r.Error, ErrNoEffect.Error()) || r.Call != "NodePublishVolume" {
			t.Errorf("pod: %+v", s)
		}
		mounted(t, l, "a")
		h.fails(func(call string) fault { return fault{lie: true} })
		l.RemovePod("a")
		rest()
		if h.clean() || len(d.records(t)) != 1 || len(l.GetVolumesInUse()) != 1 {
			t.Error("an unpublish that was answered OK without effect is believed")
		}
		h.fails(nil)
		rest()
		if !h.clean() {
			t.Error("left")
		}
	})
}

// Items: B07.
func TestAWaitThatFailsSaysWhatEachVolumeWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		h.fails(func(call string) fault {
			switch {
			case strings.HasPrefix(call, "Stage d^bad"):
				return fault{err: &state.CallError{Outcome: state.Failed, Call: "NodeStageVolume", Code: "Internal", Err: errors.New("disk on fire")}}
			case strings.HasPrefix(call, "Stage d^slow"):
				return fault{takes: time.Hour}
			}
			return fault{}
		})
		l := live(t, h, d)
		l.up(h)
		p := podWant("a", "good", "bad", "slow")
		p.Volumes = append(p.Volumes, state.VolumeWant{Names: []string{"odd"}, Problem: `pod n/a: spec.volumes[3]: kind "floppy" is not known`})
		l.SetPod(p)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("5s are over"))
		defer cancel()
		err := l.WaitForAttachAndMount(ctx, "a")
		var we *WaitError
		if !errors.As(err, &we) || len(we.Volumes) != 3 || we.Pod.Name != "a" {
			t.Fatalf("%v", err)
		}
		for _, want := range []string{
			"pod n/a", "5s are over", "volume bad: absent, at step Stage by driver d", "4 failed attempts over",
			"NodeStageVolume Internal: disk on fire", "next attempt in",
			"volume slow: absent, at step Stage by driver d for 5s", `volume odd: absent, at step Resolve, pod n/a: spec.volumes[3]: kind "floppy" is not known`,
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q:\n%v", want, err)
			}
		}
		if strings.Contains(err.Error(), "timed out waiting for the condition") || strings.Contains(err.Error(), "good") {
			t.Errorf("the error says too much: %v", err)
		}
		err = l.WaitForAttachAndMount(ctx, "nobody")
		if err == nil || !strings.Contains(err.Error(), "no source of pods lists it") {
			t.Errorf("%v", err)
		}
		time.Sleep(2 * time.Hour) // let the slow call end inside the bubble
	})
}

// Items: D12.
// Faults: A045.
func TestAHungCallHoldsUpNothingButItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		h.fails(func(call string) fault { return fault{hangs: strings.Contains(call, "d^hung")} })
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "hung"))
		l.SetPod(podWant("b", "v"))
		at := time.Now()
		mounted(t, l, "b")
		if took := time.Since(at); took > time.Second {
			t.Errorf("the other volume took %v", took)
		}
		rest()
		s, _ := l.Pod("a")
		if r := s.Volumes[0].Retry; r.Attempts < 2 || !strings.Contains(r.Error, "no answer within") {
			t.Errorf("calls that hang are not ended and made again: %+v", r)
		}
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Faults: A052.
func TestLimitsHoldAndRemovalsHaveTheirOwnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		limits := plan.Limits{Node: 6, Driver: 6, Reserved: 2}
		l := live(t, h, d, func(c *Config) { c.Limits = limits })
		l.up(h)
		l.SetPod(podWant("old", "old"))
		mounted(t, l, "old")
		most := 0
		h.fails(func(call string) fault {
			most = max(most, len(h.inFlight))
			return fault{hangs: strings.HasPrefix(call, "Stage")}
		})
		for i := range 20 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		synctest.Wait()
		if n := len(h.inFlight); n != limits.Driver-limits.Reserved {
			t.Errorf("%d calls in flight, want %d", n, limits.Driver-limits.Reserved)
		}
		waiting := 0
		for _, v := range l.Volumes() {
			if strings.Contains(v.Held.Reason, "calls in flight to end") {
				waiting++
			}
		}
		if waiting != 16 {
			t.Errorf("%d volumes say that they wait for a slot, want 16", waiting)
		}
		l.RemovePod("old")
		synctest.Wait()
		if h.published["/pods/old/old"] != "" || h.staged["/stage/old"] != "" {
			t.Error("a removal waits for calls that make volumes")
		}
		h.fails(func(string) fault {
			most = max(most, len(h.inFlight))
			return fault{}
		})
		for i := range 20 {
			mounted(t, l, fmt.Sprint("p", i))
		}
		if most > limits.Driver {
			t.Errorf("%d calls at once, want %d at most", most, limits.Driver)
		}
	})
}

// Items: C25.
func TestNoCallIsMadeWhileTheJournalCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		synctest.Wait()
		d.fail(0)
		l.SetPod(podWant("a", "v"))
		rest()
		equal(t, "calls", h.calls(), nil)
		if s, _ := l.Pod("a"); !strings.Contains(s.Volumes[0].BlockedBy, errDisk.Error()) {
			t.Errorf("pod: %+v", s)
		}
		d.fail(-1)
		mounted(t, l, "a")
	})
}

// Items: B15.
func TestAVolumeGrowsWhileMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		grown := make(chan state.Volume, 1)
		l := live(t, h, d, func(c *Config) { c.OnExpanded = func(v state.Volume) { grown <- v } })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		p := podWant("a", "v")
		p.Volumes[0].SizeBytes = 5
		l.SetPod(p)
		if v := <-grown; v.ID != "d^v" || v.SizeBytes != 5 {
			t.Errorf("%+v", v)
		}
		rest()
		if h.took["Expand"] != 1 || d.records(t)["d^v"].SizeBytes != 5 {
			t.Errorf("%d calls, record %+v", h.took["Expand"], d.records(t)["d^v"])
		}
	})
}

// Items: C11, C28.
func TestNewContentIsPublishedAgainAndAFailureKeepsTheMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		p := podWant("a", "v")
		p.Volumes[0].Revision = "1"
		l.SetPod(p)
		mounted(t, l, "a")
		made := time.Now()
		rest()
		h.fails(func(string) fault { return fault{err: errors.New("source is away")} })
		p = podWant("a", "v")
		p.Volumes[0].Revision = "2"
		l.SetPod(p)
		rest()
		s, _ := l.Pod("a")
		if at := s.Volumes[0].ContentAt; at.IsZero() || at.After(made) {
			t.Errorf("its content is of %v, want of %v at the latest", at, made)
		}
		if !s.Ready || s.Volumes[0].Step != "Republish" || !strings.Contains(s.Volumes[0].Retry.Error, "source is away") || h.took["Unpublish"] != 0 {
			t.Errorf("pod: %+v", s)
		}
		h.fails(nil)
		l.RetryNow("d^v")
		rest()
		if v, _ := l.Volume("d^v"); v.Volume.Mounts["a"].Revision != "2" || v.Held.Reason != "" || !v.Volume.Mounts["a"].RevisionAt.After(made) {
			t.Errorf("%+v", v)
		}
		l.SetPod(podWant("b", "w"))
		mounted(t, l, "b")
		if s, _ := l.Pod("b"); !s.Volumes[0].ContentAt.IsZero() {
			t.Errorf("without content of ours: %+v", s)
		}
	})
}

// Items: A12, A23, A26.
func TestTheKubeletsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		gid := int64(77)
		p := podWant("a", "v", "w", "x")
		p.SupplementalGroups = []int64{5}
		p.Volumes[0].Names = []string{"data", "again"}
		p.Volumes[0].GID = &gid
		notYet, itsOwn := int64(78), int64(5) // of a volume that is not mounted, and a group that the pod names
		p.Volumes[1].GID, p.Volumes[2].GID = &notYet, &itsOwn
		h.fails(func(call string) fault {
			if call == "Publish d^w a" {
				return fault{err: errors.New("not yet")}
			}
			return fault{}
		})
		l.SetPod(p)
		synctest.Wait()
		m := l.GetMountedVolumesForPod("a")
		if len(m) != 3 || m["data"].HostPath != "/pods/a/v" || m["again"].SpecName != "v" || m["data"].Driver != "d" {
			t.Errorf("mounted: %+v", m)
		}
		equal(t, "possibly mounted", l.GetPossiblyMountedVolumesForPod("a"), []state.VolumeID{"d^v", "d^w", "d^x"})
		if !l.HasPossiblyMountedVolumesForPod("a") || l.HasPossiblyMountedVolumesForPod("b") {
			t.Error("HasPossiblyMountedVolumesForPod")
		}
		equal(t, "groups", l.GetExtraSupplementalGroupsForPod("a"), []int64{77})
		equal(t, "in use", l.GetVolumesInUse(), []state.VolumeID{"d^v", "d^w", "d^x"})
		if !l.VolumeIsAttached("d^v") || l.VolumeIsAttached("d^y") {
			t.Error("VolumeIsAttached")
		}
		h.fails(nil)
		l.RemovePod("a")
		if err := l.WaitForAllPodsUnmount(t.Context(), []state.PodUID{"a", "b"}); err != nil {
			t.Error(err)
		}
		rest()
		equal(t, "in use in the end", l.GetVolumesInUse(), nil)
	})
}

// Items: A23.
func TestTheInUseHandshakeHoldsAVolumeUntilItIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.InUseHandshake = true })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		rest()
		equal(t, "calls", h.calls(), nil)
		equal(t, "in use", l.GetVolumesInUse(), []state.VolumeID{"d^v"})
		l.MarkVolumesAsReportedInUse([]state.VolumeID{"d^v"})
		mounted(t, l, "a")
	})
}

// Items: C29, E08.
// Faults: A003.
func TestARecordThatCannotBeReadStaysInUseAndUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		m, err := New(Config{Store: quarantining{state.NewMemory()}, Kernel: h, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		m.DriverUp(DriverInfo{Name: "d", Stage: true}, h)
		m.SetPod(podWant("a", "v"))
		rest()
		equal(t, "calls", h.calls(), nil)
		equal(t, "in use", m.GetVolumesInUse(), []state.VolumeID{"d^v"})
		if s, _ := m.Pod("a"); s.Ready || !strings.Contains(s.Volumes[0].BlockedBy, "bad checksum") {
			t.Errorf("pod: %+v", s)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type quarantining struct{ *state.Memory }

func (quarantining) Load(context.Context) (state.Loaded, error) {
	return state.Loaded{Quarantined: map[state.VolumeID]string{"d^v": "bad checksum"}, BootID: ""}, nil
}

// TestAChangeTouchesOnlyItsVolumes: work does not grow with what stands still.
func TestAChangeTouchesOnlyItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		for i := range 300 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		for i := range 300 {
			mounted(t, l, fmt.Sprint("p", i))
		}
		rest()
		planned := make(chan int, 1)
		l.post(func(lp *loop) { planned <- len(lp.dirty.ids) })
		if n := <-planned; n != 0 {
			t.Errorf("%d volumes to be planned on an idle node", n)
		}
		l.SetPod(podWant("new", "new"))
		l.post(func(lp *loop) { planned <- len(lp.dirty.ids) })
		if n := <-planned; n > 1 {
			t.Errorf("%d volumes to be planned for one new pod", n)
		}
		mounted(t, l, "new")
		l.post(func(lp *loop) { planned <- len(lp.wakes.at) })
		if n := <-planned; n != 0 {
			t.Errorf("%d timers on a node where nothing waits", n)
		}
	})
}

func TestNewNeedsItsParts(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a manager without store and kernel is made")
	}
}

func TestAMountThatVanishesIsNoticedAndMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v", "w"))
		mounted(t, l, "a")
		rest()
		before := len(h.calls())
		l.MountsSeen(oneLayer("/stage/v", "/stage/w")) // an old list: the mounts are there
		rest()
		equal(t, "calls when nothing is missing", h.calls()[before:], nil)
		h.mu.Lock()
		delete(h.published, "/pods/a/v")
		h.mu.Unlock()
		l.MountsSeen(oneLayer("/stage/v", "/stage/w", "/pods/a/w"))
		rest()
		equal(t, "calls", h.calls()[before:], []string{"Publish d^v a"})
		h.mu.Lock()
		clear(h.published)
		clear(h.staged)
		h.mu.Unlock()
		before = len(h.calls())
		l.DriverDown("d", "died with its mounts")
		l.MountsSeen(nil)
		rest()
		if s, _ := l.Pod("a"); s.Ready {
			t.Error("ready although nothing is mounted")
		}
		l.up(h)
		mounted(t, l, "a")
		if len(h.calls())-before != 4 || len(h.published) != 2 {
			t.Errorf("calls %v", h.calls()[before:])
		}
	})
}
