package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
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
	// Left lists the snapshots that were in Made and are of another volume than the claim's. The
	// schedule neither counts nor deletes them.
	Left []string `json:"left,omitempty"`
}

// Volume is one volume. A driver whose handles follow from names gives the ID of a lost volume to the next one of
// its claim, with another mark; volumes of earlier versions have no mark.
type Volume struct {
	ID   state.VolumeID
	Mark string
}

func (v Volume) String() string {
	if v.Mark == "" {
		return string(v.ID)
	}
	return string(v.ID) + " made as " + v.Mark
}

// Known is the state of an existing snapshot.
type Known struct {
	Ready, Deleting bool
	// Kept means that its deletionPolicy is Retain: the schedule leaves it to the operator.
	Kept bool
	// Volume is the volume that the snapshot is of; it has no ID if that is unknown.
	Volume Volume
}

// of reports whether s is a ready snapshot of the volume.
func (s Known) of(volume Volume) bool {
	return s.Ready && !s.Deleting && volume.ID != "" && s.Volume == volume
}

// foreign reports whether s is a snapshot of another volume. A ready one whose volume is unknown
// was named by its handle: it has the schedule's name and is not the schedule's.
func (s Known) foreign(volume Volume) bool {
	return volume.ID != "" && !s.Deleting && s.Volume != volume && (s.Ready || s.Volume.ID != "")
}

// Facts is what a decision about a schedule depends on in addition to its record.
type Facts struct {
	// Snapshots are all snapshots in the schedule's namespace.
	Snapshots map[string]Known
	// Volume is the present volume of the schedule's claim; it has no ID while the claim has none.
	Volume Volume
}

// verb is what to do next for a schedule.
type verb uint8

const (
	wait   verb = iota // nothing until due, or until a change
	begin              // store that snapshot name is to be created
	apply              // create the stored snapshot
	remove             // delete snapshot name
	forget             // drop name, which no longer exists
	leave              // stop counting name, which is of another volume than the claim's
)

// action is one step.
type action struct {
	verb  verb
	name  string
	due   time.Time // for begin, the due time; for wait, until when
	until string    // for wait, the reason, if it is not only the time
}

// next returns the next step of a schedule. Only snapshots of the claim's present volume count, so
// that those of a volume that was lost are not deleted in favour of its successor's.
func next(r record, f Facts, now time.Time) action {
	if r.Asked != "" {
		return action{verb: apply, name: r.Asked}
	}
	for _, name := range slices.Concat(r.Left, r.Made) {
		if _, there := f.Snapshots[name]; !there {
			return action{verb: forget, name: name}
		}
	}
	for _, name := range r.Made {
		if f.Snapshots[name].foreign(f.Volume) {
			return action{verb: leave, name: name}
		}
	}
	gone := action{verb: remove}
	if ready := counted(r, f); len(ready) > max(r.Keep, 1) {
		gone.name = ready[0]
		if len(ready)-max(r.Keep, 1) > spare {
			return gone
		}
	}
	a := dueNow(r, f.Snapshots, now)
	if a.verb == wait && gone.name != "" {
		return gone
	}
	return a
}

// counted returns the snapshots that count towards Keep, the oldest first.
func counted(r record, f Facts) (ready []string) {
	for _, name := range r.Made {
		if f.Snapshots[name].of(f.Volume) {
			ready = append(ready, name)
		}
	}
	return ready
}

// beyond returns the snapshots that a schedule with another Keep would delete. While the claim has
// no volume, it returns those of every volume, since the claim may get each of them back.
func beyond(r record, f Facts, keep int) []string {
	ready := counted(r, f)
	if f.Volume.ID == "" {
		ready = slices.DeleteFunc(slices.Clone(r.Made), func(name string) bool {
			s := f.Snapshots[name]
			return !s.Ready || s.Deleting
		})
	}
	return slices.DeleteFunc(ready[:max(len(ready)-keep, 0)], func(name string) bool { return f.Snapshots[name].Kept })
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
		r.Made, r.Left = without(r.Made, a.name), without(r.Left, a.name)
	case leave:
		r.Made, r.Left = without(r.Made, a.name), append(slices.Clone(r.Left), a.name)
	case wait, remove:
	}
	return r
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
