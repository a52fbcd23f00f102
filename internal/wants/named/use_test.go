package named

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The test runs next on every combination of its inputs, and states the rules independently.
func TestWhenAVolumeIsNoLongerWanted(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ages := []time.Duration{-time.Second, 0, Linger - 1, Linger, Linger + 1, time.Minute, 20 * time.Minute}
	looks := map[string]look{
		"none": {}, "free": {again: 1}, "held": {found: []Holder{{PID: 7, Path: "/data"}}, again: 1},
		"held long": {found: []Holder{{PID: 7, Path: "/data"}}, again: 40}, "unknown": {err: errors.New("no /proc"), again: 2},
	}
	states, seen := 0, map[move]int{}
	for _, v := range []Volume{
		{},
		{Listed: true},
		{Listed: true, Standing: true},
		{Listed: true, Uses: map[string]int{"a": 1}},
		{Listed: true, Removing: true},
	} {
		for _, pending := range []int{0, 1} {
			for _, awaited := range []time.Duration{0, 10 * time.Minute} {
				for name, l := range looks {
					for _, lookAge := range ages { // time since the last use
						for _, age := range ages {
							f := facts{pending: pending, lastUse: t0, look: l}
							if awaited > 0 {
								f.awaited = t0.Add(awaited)
							}
							if name != "none" {
								f.look.at = t0.Add(lookAge)
							}
							now := t0.Add(age)
							m, until := next(v, f, now)
							states++
							seen[m]++
							idle := v.Listed && !v.Standing && !v.Removing && v.useCount() == 0 && pending == 0
							end := t0.Add(max(Linger, awaited))
							fresh := name != "none" && !f.look.at.Before(end)
							switch {
							case m == leave && (!idle || now.Before(end) || name != "free" || !fresh):
								t.Errorf("%+v %+v at %v: the pod is taken back", v, f, age)
							case m == ask && (!idle || now.Before(end)):
								t.Errorf("%+v %+v at %v: a look that nothing needs", v, f, age)
							case m == stay && idle && until.IsZero():
								t.Errorf("%+v %+v at %v: an idle volume waits for an event that never comes", v, f, age)
							case m == stay && !until.IsZero() && !until.After(now):
								t.Errorf("%+v %+v at %v: waits until %v", v, f, age, until)
							}
						}
					}
				}
			}
		}
	}
	if seen[leave] == 0 || seen[ask] == 0 || seen[stay] == 0 {
		t.Errorf("%d states, moves %v", states, seen)
	}
}

func TestLooksAtAHolderGetRarer(t *testing.T) {
	last := time.Duration(0)
	for n := range 100 {
		d := pause(n)
		if d < firstPause || d > lastPause || d < last {
			t.Errorf("pause %d is %v", n, d)
		}
		last = d
	}
	if last != lastPause {
		t.Errorf("the longest pause is %v", last)
	}
}

func TestUsesAreCountedAnIDEach(t *testing.T) {
	v := Volume{}.withUse("a", 1).withUse("a", 1).withUse("b", 1)
	was := v
	v = v.withUse("b", -1).withUse("b", -1).withUse("c", -1)
	if v.useCount() != 2 || v.Uses["a"] != 2 || was.useCount() != 3 {
		t.Errorf("got %v, before %v", v.Uses, was.Uses)
	}
}

func TestARebootEndsUsesAndNoStandingWish(t *testing.T) {
	v := Volume{Boot: "1", Listed: true, Uses: map[string]int{"a": 1}, Path: "/p"}
	if got := v.atBoot("1"); got.useCount() != 1 || !got.Listed {
		t.Errorf("the same boot: %+v", got)
	}
	if got := v.atBoot("2"); got.useCount() != 0 || got.Listed || got.Path != "" || got.Boot != "2" {
		t.Errorf("another boot: %+v", got)
	}
	v.Standing = true
	if got := v.atBoot("2"); got.useCount() != 0 || !got.Listed {
		t.Errorf("another boot, standing: %+v", got)
	}
}

// A holder says how it has the volume, and how certain that is; where only processes have it, nothing can be unmounted.
func TestHoldersSayWhatEndsTheUse(t *testing.T) {
	data := Identity{FrontEnd: Mount, Volume: "default/data"}
	for _, tt := range []struct {
		holder     Holder
		text, ends string
	}{
		{Holder{Path: "/srv"}, "the mount at /srv", "umount /srv && csi-volmgr volume remove default/data"},
		{Holder{PID: 7, Program: "sh", Path: "/t"}, "process 7 (sh) at /t", "csi-volmgr volume remove default/data"},
		{
			Holder{PID: 7, Program: "sh", Path: "/t", Detached: true},
			"process 7 (sh), which still uses a mount of it that was unmounted lazily (umount -l)", "csi-volmgr volume remove default/data",
		},
		{
			Holder{PID: 7, Program: "sh", Container: "c0ffee", Path: "/t", Detached: true, Unsure: true},
			"container c0ffee (sh, process 7), which may hold it: a mount of this file system was unmounted lazily (umount -l) " +
				"and is still in use", "csi-volmgr volume remove default/data",
		},
	} {
		if got := tt.holder.String(); got != tt.text {
			t.Errorf("got %q, want %q", got, tt.text)
		}
		if got := data.EndsFor([]Holder{tt.holder}); got != tt.ends {
			t.Errorf("%s: got %q, want %q", tt.text, got, tt.ends)
		}
	}
	if got := data.EndsFor(nil); got != "umount DIRECTORY && csi-volmgr volume remove default/data" {
		t.Errorf("without a known holder: %q", got)
	}
}

// Remove removes a volume for an asker who reaches every volume.
func (p *Provider) Remove(ctx context.Context, name string) (note string, err error) {
	return p.For(Asker{}).Remove(ctx, 0, 0, name)
}

// A volume whose first container is starting has no counted use and no holder yet: its claim is not deleted under it,
// and the mount goes on.
func TestAVolumeIsNotRemovedDuringAMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		time.Sleep(startTime) // no earlier use keeps it
		mounted, path := make(chan struct{}), make(chan string)
		h.mounted = func(context.Context) error { <-mounted; return nil }
		go func() {
			at, err := p.Mount(t.Context(), "db", "c1")
			if err != nil {
				t.Error(err)
			}
			path <- at
		}()
		synctest.Wait()
		if v, _ := p.Get(t.Context(), "db"); len(v.Uses) != 0 {
			t.Fatalf("it counts: %v", v.Uses)
		}
		_, err := p.Remove(t.Context(), "db")
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "it is being mounted") || len(h.deleted) != 0 {
			t.Errorf("the removal is answered %v; deleted %v", err, h.deleted)
		}
		close(mounted)
		if at := <-path; at == "" || h.listed() != 1 {
			t.Errorf("mounted at %q, pods %d", at, h.listed())
		}
	})
}
