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

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestAPodsMountPaysOneDurableWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
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
		h, d := newFakeNode(t), newDisk()
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

// TestFaultsOfEveryKindEndAsWished: calls fail, lie and lose answers by seed; nevertheless all
// volumes are mounted, and later all are removed.
// Items: D10, D03.
func TestFaultsOfEveryKindEndAsWished(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
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

// TestCrashAtEveryCommit crashes the daemon after each of its durable writes, with faults by
// seed. The next daemon must leave the host as wished.
func TestCrashAtEveryCommit(t *testing.T) {
	for seed := range uint64(20) {
		for stop := range 10 {
			synctest.Test(t, func(t *testing.T) {
				h, d := newFakeNode(t), newDisk()
				h.fails(faultsBySeed(seed))
				l := live(t, h, d)
				l.up(h)
				d.fail(stop)
				l.SetPod(podWant("a", "v"))
				l.SetPod(podWant("b", "v", "w"))
				time.Sleep(20 * time.Second)
				l.RemovePod("b")
				time.Sleep(20 * time.Second)
				_ = l.stop() // it cannot write: results that are not in the journal are lost
				synctest.Wait()
				d.fail(-1)
				h.fails(nil)
				next := live(t, h, d, sources("s"))
				next.up(h)
				next.SetPod(podWant("a", "v"))
				next.SourceSynced("s")
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

// Faults: A052.
func TestLimitsHoldAndRemovalsHaveTheirOwnSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
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
			if strings.Contains(v.Held.Reason, "maximum number of calls in flight") {
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

// Items: C11, C28.
func TestNewContentIsPublishedAgainAndAFailureKeepsTheMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
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
		if !s.Ready || s.Volumes[0].Step != plan.Republish || !strings.Contains(s.Volumes[0].Retry.Error, "source is away") || h.took["Unpublish"] != 0 {
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
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		gid := int64(77)
		p := podWant("a", "v", "w", "x", "y")
		p.SupplementalGroups = []int64{5}
		sameAgain := gid
		p.Volumes[3].GID = &sameAgain
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
		if len(m) != 4 || m["data"].HostPath != "/pods/a/v" || m["again"].SpecName != "v" || m["data"].Driver != "d" {
			t.Errorf("mounted: %+v", m)
		}
		equal(t, "possibly mounted", l.GetPossiblyMountedVolumesForPod("a"), []state.VolumeID{"d^v", "d^w", "d^x", "d^y"})
		if !l.HasPossiblyMountedVolumesForPod("a") || l.HasPossiblyMountedVolumesForPod("b") {
			t.Error("HasPossiblyMountedVolumesForPod")
		}
		equal(t, "groups", l.GetExtraSupplementalGroupsForPod("a"), []int64{77})
		equal(t, "in use", l.GetVolumesInUse(), []state.VolumeID{"d^v", "d^w", "d^x", "d^y"})
		if !l.VolumeIsAttached("d^v") || l.VolumeIsAttached("d^z") {
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

// Items: C29, E08.
// Faults: A003.
func TestARecordThatCannotBeReadStaysInUseAndUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		m, err := New(Config{Store: quarantining{journal.NewMemory()}, Kernel: h, Logger: slog.New(slog.DiscardHandler)})
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

// While a mount that an earlier daemon made for a pod exists and its record cannot be read, the
// pod does not count as unmounted. Another pod does not wait for it.
//
// Items: C29, E08.
func TestAPodOfARecordThatCannotBeReadIsUnmountedWhenTheKernelSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		c := Config{Store: quarantining{journal.NewMemory()}, Kernel: h, Logger: slog.New(slog.DiscardHandler)}
		places(&c)
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		m.DriverUp(DriverInfo{Name: "d", Stage: true}, h)
		m.SetPod(podWant("a", "v"))
		rest()
		m.RemovePod("a")
		unmounted := func(pod state.PodUID) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			return m.WaitForUnmount(ctx, pod)
		}
		if err := unmounted("a"); err == nil || !strings.Contains(err.Error(), "the mount table has not been read yet") {
			t.Errorf("before the kernel was asked: %v", err)
		}
		m.MountsSeen(oneLayer("/stage/v", "/pods/a/v"))
		if err := unmounted("a"); err == nil || !strings.Contains(err.Error(), "/pods/a/v is mounted without a readable record") {
			t.Errorf("while it is mounted: %v", err)
		}
		if err := unmounted("b"); err != nil {
			t.Errorf("another pod: %v", err)
		}
		if u := m.Unrecorded(); u.Unknown || len(u.Places) > 0 {
			t.Errorf("the journal is said to have lost records: %+v", u)
		}
		if _, all := m.AttachedInUse(); !all {
			t.Error("what is in use is said not to be known")
		}
		waits := make(chan error, 1)
		go func() { waits <- unmounted("a") }()
		synctest.Wait()
		m.MountsSeen(oneLayer("/stage/v"))
		if err := <-waits; err != nil {
			t.Errorf("once it is gone: %v", err)
		}
		equal(t, "calls", h.calls(), nil)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

type quarantining struct{ *journal.Memory }

func (quarantining) Load(context.Context) (state.Loaded, error) {
	return state.Loaded{Quarantined: map[state.VolumeID]string{"d^v": "bad checksum"}, BootID: ""}, nil
}

func TestNewNeedsItsParts(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a manager without store and kernel is made")
	}
}
