package schedule

import (
	"fmt"
	"slices"
	"time"
)

// Every is how often a schedule is due: hourly, daily or weekly, or a duration such as 6h.
type Every string

// The words for periods.
const (
	Hourly Every = "hourly"
	Daily  Every = "daily"
	Weekly Every = "weekly"
)

// leastPeriod keeps a schedule from being all that a driver does.
const leastPeriod = time.Minute

// mostKept bounds Keep: each snapshot costs storage, and a row here.
const mostKept = 1000

// Period returns the time between two moments. An error says what would be right.
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

// Schedule says which claim snapshots are made of, and how often.
type Schedule struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Claim is the claim, in the namespace; Class the VolumeSnapshotClass, "" for the default.
	Claim string `json:"claim"`
	Class string `json:"class,omitempty"`
	Every Every  `json:"every"`
	// Keep is how many ready snapshots stay.
	Keep int `json:"keep"`
}

// Check says what is wrong with s.
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

// record is the durable memory of a schedule.
type record struct {
	Version int `json:"version"`
	Schedule
	// Last is the moment that the last snapshot was due at.
	Last time.Time `json:"last,omitzero"`
	// Made are the snapshots that there are or were asked for, in the order of their making.
	Made []string `json:"made,omitempty"`
	// Asked is the one of Made that may not have been applied yet.
	Asked string `json:"asked,omitempty"`
}

// Known is what is known of a snapshot that there is.
type Known struct{ Ready, Deleting bool }

// verb is what is done next for a schedule.
type verb uint8

const (
	wait   verb = iota // until the moment given, or a change
	begin              // note that name is to be made
	apply              // make what was noted
	remove             // delete name
	forget             // name is gone
)

// action is one step, as a value.
type action struct {
	verb  verb
	name  string
	due   time.Time // of begin: the moment; of wait: until when
	until string    // of wait: what for, where it is not for the moment alone
}

// next decides the one next step. snapshots are all that there are in the schedule's namespace.
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

// spare is how many more than Keep there may be while one cannot be deleted: a claim is being
// made from it, or its driver is away.
const spare = 3

// dueNow begins the snapshot that is due, or says what is waited for.
func dueNow(r record, snapshots map[string]Known, now time.Time) action {
	period, err := r.Every.Period()
	if err != nil {
		return action{until: err.Error()}
	}
	due := now.UTC().Truncate(period) // of weeks, which begin on Mondays, too
	behind := due.After(r.Last)
	ahead := r.Last.After(now.Add(period)) // the clock was ahead when the last was made
	if !behind && !ahead {
		return action{due: due.Add(period)}
	}
	if len(r.Made) > 0 {
		last := r.Made[len(r.Made)-1]
		if s := snapshots[last]; !s.Ready && !s.Deleting {
			return action{until: "snapshot " + last + ", the last, is not ready"}
		}
	}
	return action{verb: begin, name: free(r, snapshots, due), due: due}
}

// free is the name of the snapshot that is due, which no other has.
func free(r record, snapshots map[string]Known, due time.Time) string {
	name := r.Name + "-" + due.Format("20060102-150405")
	for n := 2; ; n++ {
		_, taken := snapshots[name]
		if !taken && !slices.Contains(r.Made, name) {
			return name
		}
		name = fmt.Sprintf("%s-%s-%d", r.Name, due.Format("20060102-150405"), n)
	}
}

// after is the record after a step was done, or of begin before it is.
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
