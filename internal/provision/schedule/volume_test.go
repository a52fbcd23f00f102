package schedule

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A claim that was lost and applied anew has another volume: the snapshots of the lost one leave the schedule, which a
// log line and the status say, and stay for ever; the schedule counts those of the new one. So it is after a daemon's
// restart, and for a driver that gives the new volume the handle of the lost one, which an earlier version made.
func TestTheSnapshotsOfALostVolumeStay(t *testing.T) {
	for i, next := range []Volume{ofID("d^new"), ofID("d^new"), {vol().ID, "2"}, {vol().ID, "2"}} {
		restart := i%2 == 1
		bubble(t, func(t *testing.T, r *rig) {
			var log bytes.Buffer
			r.with(func() { r.text = &log })
			r.end()
			r.live()
			r.set(2)
			pass(time.Hour)
			lost := slices.Clone(r.schedules()[0].Snapshots)
			if len(lost) != 2 {
				t.Fatalf("%q", lost)
			}
			r.with(func() { r.volume = Volume{} })
			pass(2 * time.Minute)
			if s := r.schedules()[0]; len(s.Left) != 0 || r.number() != 2 {
				t.Errorf("without a volume: %+v", s)
			}
			if restart {
				r.end()
			}
			r.with(func() { r.volume = next })
			if restart {
				r.live()
			}
			pass(2 * time.Minute)
			if s := r.schedules()[0]; !slices.Equal(s.Left, lost) || len(s.Snapshots) != 0 {
				t.Errorf("with the new volume: %+v, want that %q left", s, lost)
			}
			pass(100 * time.Hour)
			s := r.schedules()[0]
			if r.number() != 4 || len(s.Snapshots) != 2 || !slices.Equal(s.Left, lost) {
				t.Errorf("later: %d, %+v", r.number(), s)
			}
			for _, line := range r.lines() {
				if name, is := strings.CutPrefix(line, "delete "); is && slices.Contains(lost, name) {
					t.Errorf("%s", line)
				}
			}
			if text := log.String(); strings.Count(text, "leaves its schedule") != 2 || !strings.Contains(text, "was=d^data is=") {
				t.Errorf("the log: %s", text)
			}
			r.with(func() { delete(r.there, lost[0]); r.tell() })
			pass(2 * time.Minute)
			if s := r.schedules()[0]; !slices.Equal(s.Left, lost[1:]) {
				t.Errorf("after a person deleted one: %+v", s)
			}
		})
	}
}

// The record of a program that counted names is read, and its schedule goes on: the snapshots of the claim's present
// volume are deleted as before, and the others leave.
func TestAnOldRecordGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.end()
		last := time.Now().UTC().Truncate(time.Hour)
		r.values["default/s"] = []byte(`{"version":1,"namespace":"default","name":"s","claim":"data","every":"hourly","keep":1,"last":"` +
			last.Format(time.RFC3339) + `","made":["s-1","s-2","s-3"]}`)
		r.there = map[string]Known{"s-1": {Ready: true, Volume: ofID("d^lost")}, "s-2": {Ready: true, Volume: vol()}, "s-3": {Ready: true, Volume: vol()}}
		r.live()
		pass(2 * time.Minute)
		if s := r.schedules()[0]; !slices.Equal(s.Snapshots, []string{"s-3"}) || !slices.Equal(s.Left, []string{"s-1"}) || r.number() != 2 {
			t.Errorf("%+v, %q", s, r.lines())
		}
		pass(time.Hour)
		if s := r.schedules()[0]; len(s.Snapshots) != 1 || s.Snapshots[0] == "s-3" || r.number() != 2 {
			t.Errorf("an hour later: %+v, %q", s, r.lines())
		}
	})
}

// A schedule's name does not pass to another claim; a lower number that deletes snapshots is refused until the caller is
// sure, and both name what there is. A change of either kind that is refused changes nothing.
func TestAChangeThatTakesSnapshotsAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set(9)
		pass(2 * time.Hour)
		made := slices.Clone(r.schedules()[0].Snapshots)
		want := Schedule{Namespace: "default", Name: "s", Claim: "other", Every: Hourly, Keep: 9}
		_, err := r.k.Set(t.Context(), want, true)
		if !errors.Is(err, ErrOtherClaim) || !strings.Contains(err.Error(), "of claim data") || !strings.Contains(err.Error(), "csi-volmgr delete schedule s -n default") {
			t.Errorf("of another claim: %v", err)
		}
		want.Claim, want.Keep = "data", 1
		_, err = r.k.Set(t.Context(), want, false)
		if !errors.Is(err, ErrDeletes) || !strings.Contains(err.Error(), "2 of them if 1 stay: "+strings.Join(made[:2], ", ")) {
			t.Errorf("a lower number: %v", err)
		}
		r.with(func() { r.unknown = true })
		if _, err = r.k.Set(t.Context(), want, false); !errors.Is(err, ErrDeletes) || !strings.Contains(err.Error(), "not known yet") {
			t.Errorf("a lower number before the snapshots are known: %v", err)
		}
		r.with(func() { r.unknown = false })
		pass(2 * time.Minute)
		if s := r.schedules()[0]; s.Keep != 9 || s.Claim != "data" || r.number() != 3 {
			t.Errorf("after the refusals: %+v", s)
		}
		want.Keep = 3 // as many as there are
		if deletes, err := r.k.Set(t.Context(), want, false); err != nil || len(deletes) > 0 {
			t.Errorf("a lower number that deletes none: %q, %v", deletes, err)
		}
		want.Keep = 1
		deletes, err := r.k.Set(t.Context(), want, true)
		pass(2 * time.Minute)
		if err != nil || !slices.Equal(deletes, made[:2]) || !slices.Equal(r.schedules()[0].Snapshots, made[2:]) {
			t.Errorf("deleted %q, %v, %+v", deletes, err, r.schedules()[0])
		}
	})
}
