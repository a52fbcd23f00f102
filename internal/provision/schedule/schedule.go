package schedule

import (
	"fmt"
	"slices"
	"time"
)

// Every is a schedule's period: hourly, daily or weekly, or a duration such as 6h.
type Every string

// The named periods.
const (
	Hourly Every = "hourly"
	Daily  Every = "daily"
	Weekly Every = "weekly"
)

// leastPeriod keeps a schedule from occupying a driver completely.
const leastPeriod = time.Minute

// mostKept limits Keep, since each snapshot takes storage and a row here.
const mostKept = 1000

// Period returns the time between two due times. An error says what would be right.
func (e Every) Period() (time.Duration, error) {
	switch e {
	case Hourly:
		return time.Hour, nil
	case Daily:
		return 24 * time.Hour, nil
	case Weekly:
		return 7 * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(string(e))
	if err != nil || d < leastPeriod {
		return 0, fmt.Errorf("every: found %q, want hourly, daily, weekly, or a duration of %v at least, such as 6h", e,
			leastPeriod)
	}
	return d, nil
}

// Schedule defines which claim to snapshot, and how often.
type Schedule struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Claim is a claim in the namespace; Class is the VolumeSnapshotClass, or "" for the default.
	Claim string `json:"claim"`
	Class string `json:"class,omitempty"`
	Every Every  `json:"every"`
	// Keep is the number of ready snapshots to keep.
	Keep int `json:"keep"`
}

// Check returns an error if s is invalid.
func (s Schedule) Check() error {
	if _, err := s.Every.Period(); err != nil {
		return err
	}
	if s.Keep < 1 || s.Keep > mostKept {
		return fmt.Errorf("keep: found %d, want 1 to %d", s.Keep, mostKept)
	}
	return nil
}

func (s Schedule) key() string { return s.Namespace + "/" + s.Name }

// record is the durable state of a schedule.
type record struct {
	Version int `json:"version"`
	Schedule
	// Last is the due time of the last snapshot.
	Last time.Time `json:"last,omitzero"`
	// Made lists the snapshots that were requested and not yet forgotten, in order.
	Made []string `json:"made,omitempty"`
	// Asked is the snapshot in Made that may not have been requested yet.
	Asked string `json:"asked,omitempty"`
}

// Known is the state of an existing snapshot.
type Known struct{ Ready, Deleting bool }

// verb is what to do next for a schedule.
type verb uint8

const (
	wait   verb = iota // nothing until due, or until a change
	begin              // store that snapshot name is to be created
	apply              // create the stored snapshot
	remove             // delete snapshot name
	forget             // drop name, which no longer exists
)

// action is one step.
type action struct {
	verb  verb
	name  string
	due   time.Time // for begin, the due time; for wait, until when
	until string    // for wait, the reason, if it is not only the time
}

// next returns the next step of a schedule. snapshots are all snapshots in the schedule's
// namespace.
func next(r record, snapshots map[string]Known, now time.Time) action {
	if r.Asked != "" {
		return action{verb: apply, name: r.Asked}
	}
	var ready []string
	for _, name := range r.Made {
		s, there := snapshots[name]
		switch {
		case !there:
			return action{verb: forget, name: name}
		case s.Ready && !s.Deleting:
			ready = append(ready, name)
		}
	}
	gone := action{verb: remove}
	if over := len(ready) - max(r.Keep, 1); over > 0 {
		gone.name = ready[0]
		if over > spare {
			return gone
		}
	}
	a := dueNow(r, snapshots, now)
	if a.verb == wait && gone.name != "" {
		return gone
	}
	return a
}

// spare is how many snapshots there may be beyond Keep while one cannot be deleted because a claim
// is being created from it, or its driver is away.
const spare = 3

// dueNow begins the snapshot that is due, or returns what to wait for.
func dueNow(r record, snapshots map[string]Known, now time.Time) action {
	period, err := r.Every.Period()
	if err != nil {
		return action{until: err.Error()}
	}
	due := now.UTC().Truncate(period) // weeks begin on Mondays
	behind := due.After(r.Last)
	ahead := r.Last.After(now.Add(period)) // the clock was fast when the last one was created
	if !behind && !ahead {
		return action{due: due.Add(period)}
	}
	if len(r.Made) > 0 {
		last := r.Made[len(r.Made)-1]
		if s := snapshots[last]; !s.Ready && !s.Deleting {
			return action{until: "the last snapshot, " + last + ", is not ready"}
		}
	}
	return action{verb: begin, name: freeName(r, snapshots, due), due: due}
}

// freeName returns a name for the due snapshot that no other snapshot has.
func freeName(r record, snapshots map[string]Known, due time.Time) string {
	name := r.Name + "-" + due.Format("20060102-150405")
	for n := 2; ; n++ {
		_, taken := snapshots[name]
		if !taken && !slices.Contains(r.Made, name) {
			return name
		}
		name = fmt.Sprintf("%s-%s-%d", r.Name, due.Format("20060102-150405"), n)
	}
}

// after returns the record after a step. For begin, it is stored before the step.
func after(r record, a action) record {
	switch a.verb {
	case begin:
		r.Last, r.Asked, r.Made = a.due, a.name, append(slices.Clone(r.Made), a.name)
	case apply:
		r.Asked = ""
	case forget:
		r.Made = slices.DeleteFunc(slices.Clone(r.Made), func(name string) bool { return name == a.name })
	case wait, remove:
	}
	return r
}
