package schedule

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var start = time.Date(2026, 11, 25, 17, 20, 30, 0, time.UTC) // a Wednesday

// ofID returns the volume of an id.
func ofID(id state.VolumeID) Volume { return Volume{ID: id} }

// vol is the volume of the claim.
func vol() Volume { return ofID("d^data") }

// of returns the facts about a claim with the volume vol.
func of(there map[string]Known) Facts { return Facts{Snapshots: there, Volume: vol()} }

func hourly(keep int) record {
	return record{Version: version, Schedule: Schedule{Namespace: "default", Name: "s", Claim: "data", Every: Hourly, Keep: keep}}
}

func TestPeriods(t *testing.T) {
	for e, want := range map[Every]time.Duration{
		Hourly: time.Hour, Daily: 24 * time.Hour, Weekly: 168 * time.Hour, "6h": 6 * time.Hour, "1m": time.Minute,
		"59s": 0, "-1h": 0, "": 0, "monthly": 0, "0": 0,
	} {
		got, err := e.Period()
		if got != want || (want == 0) != (err != nil) {
			t.Errorf("%q: %v, %v", e, got, err)
		}
	}
	for keep, ok := range map[int]bool{-1: false, 0: false, 1: true, 1000: true, 1001: false} {
		if err := (Schedule{Every: Daily, Keep: keep}).Check(); (err == nil) != ok {
			t.Errorf("keep %d: %v", keep, err)
		}
	}
}

// A schedule is due at the full hour, at midnight, or on Monday; one snapshot makes up for
// all that were missed, and a clock that was ahead stops no schedule.
func TestWhenAScheduleIsDue(t *testing.T) {
	at := func(s string) time.Time {
		d, err := time.Parse(time.DateTime, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for what, c := range map[string]struct {
		every Every
		last  time.Time
		now   time.Time
		want  string // the name of the snapshot that begins; "" for none
		due   time.Time
	}{
		"the first, at once":         {Hourly, time.Time{}, start, "s-20261125-170000", at("2026-11-25 17:00:00")},
		"the hour is not over":       {Hourly, at("2026-11-25 17:00:00"), start, "", at("2026-11-25 18:00:00")},
		"the hour is over":           {Hourly, at("2026-11-25 17:00:00"), at("2026-11-25 18:00:00"), "s-20261125-180000", at("2026-11-25 18:00:00")},
		"ten were missed":            {Hourly, at("2026-11-25 07:00:00"), start, "s-20261125-170000", at("2026-11-25 17:00:00")},
		"midnight":                   {Daily, at("2026-11-24 00:00:00"), start, "s-20261125-000000", at("2026-11-25 00:00:00")},
		"Monday":                     {Weekly, at("2026-11-16 00:00:00"), start, "s-20261123-000000", at("2026-11-23 00:00:00")},
		"not before Monday":          {Weekly, at("2026-11-23 00:00:00"), start, "", at("2026-11-30 00:00:00")},
		"a quarter of a day":         {"6h", at("2026-11-25 06:00:00"), start, "s-20261125-120000", at("2026-11-25 12:00:00")},
		"the clock was a year ahead": {Hourly, at("2027-11-25 17:00:00"), start, "s-20261125-170000", at("2026-11-25 17:00:00")},
		"the clock goes back a bit":  {Hourly, at("2026-11-25 18:00:00"), start, "", at("2026-11-25 18:00:00")},
		"another zone":               {Daily, at("2026-11-25 00:00:00"), start.In(time.FixedZone("x", 9*3600)), "", at("2026-11-26 00:00:00")},
	} {
		r := hourly(24)
		r.Every, r.Last = c.every, c.last
		a := next(r, Facts{Volume: vol()}, c.now)
		if (a.verb == begin) != (c.want != "") || a.name != c.want || !a.due.Equal(c.due) {
			t.Errorf("%s: %+v, want %q at %v", what, a, c.want, c.due)
		}
	}
}

// run takes a schedule through n moments; each snapshot becomes ready unless sick says that
// its driver is away. It returns the deleted snapshots, in order.
func run(t *testing.T, r record, clock func(i int) time.Time, n int, sick func(i int) bool) (record, map[string]Known, []string) {
	t.Helper()
	there := map[string]Known{}
	var deleted []string
	for i := range n {
		now := clock(i)
		heal := func() {
			for name := range there {
				if !sick(i) {
					there[name] = Known{Ready: true, Volume: vol()}
				}
			}
		}
		heal()
		for steps := 0; ; steps++ {
			if steps > 100 {
				t.Fatalf("it does not rest: %+v", r)
			}
			a := next(r, of(there), now)
			if a.verb == wait {
				break
			}
			switch a.verb {
			case apply:
				if _, again := there[a.name]; again {
					t.Errorf("%s is made again", a.name)
				}
				there[a.name] = Known{}
			case remove:
				if !there[a.name].Ready {
					t.Errorf("%s is deleted and was not ready", a.name)
				}
				if ready := count(r, there); ready <= r.Keep {
					t.Errorf("%s is deleted of %d ready", a.name, ready)
				}
				delete(there, a.name)
				deleted = append(deleted, a.name)
			}
			r = after(r, a)
			heal()
		}
	}
	return r, there, deleted
}

func count(r record, there map[string]Known) (ready int) {
	for _, name := range r.Made {
		if there[name].Ready {
			ready++
		}
	}
	return ready
}

// The 25th snapshot of an hourly schedule that keeps 24 deletes the first, and nothing else;
// whatever the clock does in between, 24 stay, and the youngest is among them.
func TestTheOldestReadyOneGoes(t *testing.T) {
	never := func(int) bool { return false }
	hour := func(i int) time.Time { return start.Add(time.Duration(i) * time.Hour) }
	r, there, deleted := run(t, hourly(24), hour, 24, never)
	if len(there) != 24 || len(deleted) != 0 {
		t.Errorf("after 24: %d, deleted %v", len(there), deleted)
	}
	first := r.Made[0]
	_, there, deleted = run(t, hourly(24), hour, 25, never)
	if len(there) != 24 || !slices.Equal(deleted, []string{first}) {
		t.Errorf("after 25: %d, deleted %v, want %s", len(there), deleted, first)
	}
	for what, clock := range map[string]func(i int) time.Time{
		"back a year in the middle": func(i int) time.Time {
			if i > 20 {
				return hour(i).AddDate(-1, 0, 0)
			}
			return hour(i)
		},
		"ahead a year in the middle, and back": func(i int) time.Time {
			if i > 20 && i < 30 {
				return hour(i).AddDate(1, 0, 0)
			}
			return hour(i)
		},
		"to and fro": func(i int) time.Time { return hour(i).Add(time.Duration(i%2) * 72 * time.Hour) },
		"asleep":     func(i int) time.Time { return hour(i * (1 + i%7)) },
	} {
		r, there, deleted := run(t, hourly(24), clock, 60, never)
		if len(there) != 24 || count(r, there) != 24 || len(deleted) < 10 {
			t.Errorf("%s: %d there, %d ready, %d deleted", what, len(there), count(r, there), len(deleted))
		}
		if last := r.Made[len(r.Made)-1]; !there[last].Ready {
			t.Errorf("%s: the youngest, %s, is gone", what, last)
		}
	}
}

// While the last snapshot is not ready, none is made and none is deleted; a schedule that
// keeps one has one.
func TestNonePileUpAtADriverThatIsAway(t *testing.T) {
	hour := func(i int) time.Time { return start.Add(time.Duration(i) * time.Hour) }
	_, there, deleted := run(t, hourly(3), hour, 40, func(i int) bool { return i >= 5 && i < 35 })
	if len(there) != 3 || len(deleted) != 8 { // 5 before, 1 that waited, 5 after
		t.Errorf("%d there, deleted %v", len(there), deleted)
	}
	_, there, _ = run(t, hourly(1), hour, 10, func(int) bool { return false })
	if len(there) != 1 {
		t.Errorf("%d there", len(there))
	}
}

// A snapshot that cannot be deleted blocks new ones only when there are three too many.
func TestOneThatCannotBeDeletedHoldsUpThree(t *testing.T) {
	r, there := hourly(2), map[string]Known{}
	begun := 0
	for i := range 20 {
		for a := next(r, of(there), start.Add(time.Duration(i)*time.Hour)); a.verb == begin || a.verb == apply; a = next(r, of(there), start.Add(time.Duration(i)*time.Hour)) {
			if a.verb == apply {
				begun++
				there[a.name] = Known{Ready: true, Volume: vol()}
			}
			r = after(r, a)
		}
	}
	if begun != 2+spare+1 {
		t.Errorf("%d were made, want %d", begun, 2+spare+1)
	}
}

// A snapshot that a person deleted is forgotten, and if a person's snapshot has a name, the
// schedule uses another.
func TestSnapshotsOfOthers(t *testing.T) {
	r := hourly(2)
	r.Made, r.Last = []string{"gone", "here"}, start.Truncate(time.Hour)
	if a := next(r, of(map[string]Known{"here": {Ready: true, Volume: vol()}}), start); a.verb != forget || a.name != "gone" {
		t.Errorf("%+v", a)
	}
	r = hourly(2)
	name := "s-20261125-170000"
	if a := next(r, of(map[string]Known{name: {}, name + "-2": {}}), start); a.verb != begin || a.name != name+"-3" {
		t.Errorf("%+v", a)
	}
	for i := range 3 { // snapshots of others do not count
		r.Made = append(r.Made, fmt.Sprint(i))
	}
	r.Last = start.Truncate(time.Hour)
	there := map[string]Known{"0": {Ready: true, Volume: vol()}, "1": {Ready: true, Deleting: true, Volume: vol()}, "2": {Ready: true, Volume: vol()}, "3": {Ready: true, Volume: vol()}}
	if a := next(r, of(there), start); a.verb != wait {
		t.Errorf("%+v", a)
	}
}

// Whatever each of four snapshots is, and whatever volume the claim has, a schedule deletes only a ready snapshot of the
// claim's present volume, the oldest, and only if as many of that volume stay as are to be kept. One of another volume
// leaves it, once, and is never deleted.
func TestOnlySnapshotsOfTheClaimsVolumeAreDeleted(t *testing.T) {
	other := ofID("d^other")
	again := Volume{ID: vol().ID, Mark: "m"} // the driver's handle follows from a name
	kinds := map[string]*Known{
		"of the volume": {Ready: true, Volume: vol()}, "of another": {Ready: true, Volume: other}, "of none": {Ready: true},
		"not begun": {}, "being made": {Volume: vol()}, "of another, being made": {Volume: other},
		"deleted": {Ready: true, Deleting: true, Volume: vol()}, "of another, deleted": {Deleting: true, Volume: other}, "gone": nil,
		"of one with its handle": {Ready: true, Volume: again},
	}
	names := slices.Sorted(maps.Keys(kinds))
	var walk func(picked []string)
	checked := 0
	walk = func(picked []string) {
		if len(picked) < 4 {
			for _, kind := range names {
				walk(append(slices.Clone(picked), kind))
			}
			return
		}
		for keep := 1; keep <= 3; keep++ {
			for _, volume := range []Volume{vol(), other, {}, ofID("d^third"), again} {
				checked++
				checkOne(t, kinds, picked, keep, volume)
			}
		}
	}
	walk(nil)
	if checked != 10*10*10*10*3*5 {
		t.Errorf("%d cases", checked)
	}
}

// checkOne lets one schedule take its steps until it rests.
func checkOne(t *testing.T, kinds map[string]*Known, picked []string, keep int, volume Volume) {
	t.Helper()
	r, there := hourly(keep), map[string]Known{}
	r.Last = start.Truncate(time.Hour) // none is due
	for i, kind := range picked {
		r.Made = append(r.Made, fmt.Sprint(i))
		if s := kinds[kind]; s != nil {
			there[fmt.Sprint(i)] = *s
		}
	}
	what := fmt.Sprintf("%q, keep %d, volume %s", picked, keep, volume)
	f := Facts{Snapshots: there, Volume: volume}
	counts := func() (n int) {
		for _, s := range there {
			if s.Ready && !s.Deleting && s.Volume == volume && volume.ID != "" {
				n++
			}
		}
		return n
	}
	before := counts()
	would := beyond(r, f, keep)
	var deleted []string
	for steps := 0; ; steps++ {
		if steps > 20 {
			t.Fatalf("%s: it does not rest", what)
		}
		a := next(r, f, start)
		if a.verb == wait {
			break
		}
		s, exists := there[a.name]
		switch a.verb {
		case remove:
			if !exists || !s.Ready || s.Deleting || volume.ID == "" || s.Volume != volume {
				t.Errorf("%s: it deletes %s, %+v", what, a.name, s)
			}
			deleted = append(deleted, a.name)
			delete(there, a.name)
		case leave:
			if !exists || s.Deleting || volume.ID == "" || s.Volume == volume {
				t.Errorf("%s: %s leaves, %+v", what, a.name, s)
			}
		case forget:
			if exists {
				t.Errorf("%s: it forgets %s, %+v", what, a.name, s)
			}
		default:
			t.Errorf("%s: %+v", what, a)
		}
		r = after(r, a)
	}
	if after := counts(); after != min(before, keep) && volume.ID != "" || !slices.IsSorted(deleted) {
		t.Errorf("%s: %d of the volume, then %d, deleted %q", what, before, after, deleted)
	}
	if volume.ID != "" && !slices.Equal(would, deleted) {
		t.Errorf("%s: deleted %q, announced %q", what, deleted, would)
	}
	for name, s := range there {
		left := volume.ID != "" && !s.Deleting && s.Volume != volume && (s.Ready || s.Volume.ID != "")
		if left != slices.Contains(r.Left, name) || left == slices.Contains(r.Made, name) {
			t.Errorf("%s: %s %+v: made %q, left %q", what, name, s, r.Made, r.Left)
		}
	}
}

// While the claim has no volume, a lower number announces what it may delete of any volume. One with the
// deletionPolicy Retain is not deleted.
func TestWhatALowerNumberDeletes(t *testing.T) {
	r := hourly(9)
	r.Made = []string{"0", "1", "2", "3"}
	there := map[string]Known{
		"0": {Ready: true, Volume: vol()}, "1": {Ready: true, Kept: true, Volume: vol()}, "2": {Ready: true, Volume: ofID("d^old")}, "3": {Volume: vol()},
	}
	for volume, want := range map[Volume][]string{vol(): {"0"}, {}: {"0"}, ofID("d^old"): nil} {
		if got := beyond(r, Facts{Snapshots: there, Volume: volume}, 1); !slices.Equal(got, want) {
			t.Errorf("volume %s: %q, want %q", volume, got, want)
		}
	}
}
