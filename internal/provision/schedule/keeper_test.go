package schedule

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a journal and snapshots that outlive a keeper.
type rig struct {
	t *testing.T
	k *Keeper

	mu      sync.Mutex
	values  map[string][]byte
	bad     map[string]string
	there   map[string]Known
	log     []string
	unknown bool
	volume  Volume // of the claim
	fail    error  // of Make and Delete
	kept    bool   // Delete says that the snapshot is to stay
	die     func(what string) bool
	changed chan struct{}
	text    io.Writer // the log; nil for none

	cancel context.CancelFunc
	ended  chan error
}

var errDied = errors.New("died")

func (r *rig) LoadBucket(context.Context, string) (state.Values, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return state.Values{Sound: maps.Clone(r.values), Unreadable: maps.Clone(r.bad)}, nil
}

func (r *rig) CommitBucket(_ context.Context, _ string, changes map[string][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.die("commit") {
		return errDied
	}
	for key, value := range changes {
		if value == nil {
			delete(r.values, key)
		} else {
			r.values[key] = value
		}
	}
	return nil
}

func (r *rig) snapshots() (map[string]map[string]Known, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return map[string]map[string]Known{"default": maps.Clone(r.there)}, !r.unknown
}

func (r *rig) volumeOf(_, _ string) Volume {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.volume
}

func (r *rig) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *rig) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *rig) make(_ context.Context, s Schedule, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.die("make") {
		return errDied
	}
	if _, again := r.there[name]; !again {
		r.there[name] = Known{Ready: true, Volume: r.volume}
		r.log = append(r.log, "make "+name+" of "+s.Claim)
		r.tell()
	}
	return nil
}

func (r *rig) delete(_ context.Context, _ Schedule, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.die("delete") {
		return errDied
	}
	if r.kept {
		return ErrKept
	}
	r.log = append(r.log, "delete "+name)
	delete(r.there, name)
	r.tell()
	return nil
}

// with changes the rig while its keeper runs.
func (r *rig) with(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// records returns the number of schedules in the journal.
func (r *rig) records() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.values)
}

// lines returns the calls so far.
func (r *rig) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

// number returns the number of snapshots.
func (r *rig) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.there)
}

func (r *rig) schedules() []Status {
	r.t.Helper()
	all, err := r.k.Schedules(context.Background())
	if err != nil {
		r.t.Error(err)
	}
	return all
}

func (r *rig) handler() slog.Handler {
	if r.text == nil {
		return slog.DiscardHandler
	}
	return slog.NewTextHandler(r.text, nil)
}

// begin makes a keeper, which does not run yet.
func (r *rig) begin() {
	r.k = New(Config{Journal: r, Snapshots: r.snapshots, Volume: r.volumeOf, Changed: r.change, Make: r.make, Delete: r.delete, Logger: slog.New(r.handler())})
}

func (r *rig) live() {
	r.begin()
	r.run()
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func(k *Keeper) { r.ended <- k.Run(ctx) }(r.k)
	synctest.Wait()
}

func (r *rig) end() {
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, values: map[string][]byte{}, there: map[string]Known{}, changed: make(chan struct{}), volume: vol(),
			die: func(string) bool { return false },
		}
		r.live()
		f(t, r)
		r.end()
	})
}

func pass(d time.Duration) {
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}

func (r *rig) set(keep int) {
	r.t.Helper()
	if _, err := r.k.Set(context.Background(), Schedule{Namespace: "default", Name: "s", Claim: "data", Every: Hourly, Keep: keep}, false); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// A schedule survives restarts; one snapshot makes up for all that were missed meanwhile.
func TestAScheduleIsKeptOverRestarts(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set(3)
		if s := r.schedules(); len(s) != 1 || len(s[0].Snapshots) != 1 || s[0].Next.IsZero() || s[0].Waits != "" {
			t.Errorf("%+v", s)
		}
		pass(2 * time.Hour)
		r.end()
		pass(10 * time.Hour)
		r.live()
		made := strings.Count(strings.Join(r.lines(), "\n"), "make ")
		if made != 4 || r.number() != 3 {
			t.Errorf("%d made, %q", made, r.lines())
		}
		pass(100 * time.Hour)
		if r.number() != 3 {
			t.Errorf("%q", r.lines())
		}
		if err := r.k.Remove(t.Context(), "default", "s"); err != nil {
			t.Error(err)
		}
		pass(5 * time.Hour)
		if r.number() != 3 || r.records() != 0 {
			t.Errorf("after its removal: %q, %d records", r.lines(), r.records())
		}
		if err := r.k.Remove(t.Context(), "default", "s"); !errors.Is(err, ErrNotFound) {
			t.Errorf("again: %v", err)
		}
	})
}

// If a client lists, sets or removes a schedule before Run has read the journal, the keeper
// reads the journal first: replacing a record unread would make its snapshots twice, and
// delete none of them.
func TestAClientMayBeQuickerThanRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set(1)
		r.end()
		r.begin()
		r.set(1)
		r.run()
		if log := r.lines(); len(log) != 1 {
			t.Errorf("set before Run: %q", log)
		}
		r.end()
		r.begin()
		if s := r.schedules(); len(s) != 1 || len(s[0].Snapshots) != 1 {
			t.Errorf("listed before Run: %+v", s)
		}
		r.begin()
		if err := r.k.Remove(t.Context(), "default", "s"); err != nil || r.records() != 0 {
			t.Errorf("removed before Run: %v, %d records", err, r.records())
		}
		r.run()
		if s := r.schedules(); len(s) != 0 {
			t.Errorf("after Run: %+v", s)
		}
	})
}

// A daemon that dies at any commit, or before any call, makes no snapshot twice, loses none
// and deletes none too many.
func TestADaemonThatDiesMakesNoneTwice(t *testing.T) {
	for n := 1; ; n++ {
		died := false
		bubble(t, func(t *testing.T, r *rig) {
			calls := 0
			r.with(func() {
				r.die = func(string) bool {
					calls++
					if calls == n {
						died = true
					}
					return calls >= n
				}
			})
			_, _ = r.k.Set(t.Context(), Schedule{Namespace: "default", Name: "s", Claim: "data", Every: Hourly, Keep: 2}, false)
			pass(3 * time.Hour)
			r.end()
			r.with(func() { r.die = func(string) bool { return false } })
			r.live()
			r.set(2)
			pass(2 * time.Hour)
			if r.number() != 2 {
				t.Errorf("at %d: %q", n, r.lines())
			}
			seen := map[string]bool{}
			for _, line := range r.lines() {
				if seen[line] {
					t.Errorf("at %d: twice: %s", n, line)
				}
				seen[line] = true
			}
			if s := r.schedules(); len(s) != 1 || len(s[0].Snapshots) != 2 {
				t.Errorf("at %d: %+v", n, s)
			}
		})
		if !died {
			if n < 10 {
				t.Errorf("the life has only %d places", n)
			}
			break
		}
	}
}

// A snapshot that cannot be made is retried, and the schedule says why it waits. The keeper does
// nothing before all snapshots are known. It leaves a snapshot that is to stay to the operator.
func TestWhatAScheduleWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.with(func() { r.unknown = true })
		r.set(1)
		pass(time.Hour)
		if log := r.lines(); len(log) != 0 {
			t.Errorf("before the snapshots are known: %q", log)
		}
		r.with(func() { r.unknown, r.fail = false, errors.New("no claim data") })
		pass(2 * time.Minute)
		if s := r.schedules(); s[0].Waits != "no claim data" {
			t.Errorf("%+v", s)
		}
		r.with(func() { r.fail = nil })
		pass(2 * time.Minute)
		if s := r.schedules(); r.number() != 1 || s[0].Waits != "" {
			t.Errorf("%+v, %q", s, r.lines())
		}
		r.with(func() { r.kept = true })
		pass(2 * time.Hour)
		if s := r.schedules(); r.number() != 3 || len(s[0].Snapshots) != 1 {
			t.Errorf("those that stay: %+v, %q", s, r.lines())
		}
	})
}

// An invalid schedule is refused; an unreadable record is shown, delays no other, and can
// be removed.
func TestSchedulesThatAreWrong(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for want, s := range map[string]Schedule{
			`every: found "monthly"`: {Every: "monthly", Keep: 1}, "keep: found 0": {Every: Daily},
		} {
			if _, err := r.k.Set(t.Context(), s, false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		r.set(1)
		r.end()
		r.values["default/torn"] = []byte("{")
		r.values["default/new"] = []byte(`{"version":9,"namespace":"default","name":"new","every":"daily","keep":1}`)
		r.bad = map[string]string{"default/flipped": "its checksum is wrong"}
		r.live()
		all := r.schedules()
		if len(all) != 4 || all[0].Name != "s" || !slices.ContainsFunc(all, func(s Status) bool {
			return s.Name == "flipped" && strings.Contains(s.Waits, "checksum")
		}) {
			t.Errorf("%+v", all)
		}
		if _, err := r.k.Set(t.Context(), Schedule{Namespace: "default", Name: "torn", Every: Daily, Keep: 1}, false); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%v", err)
		}
		if err := r.k.Remove(t.Context(), "default", "torn"); err != nil || len(r.schedules()) != 3 {
			t.Errorf("%v, %+v", err, r.schedules())
		}
	})
}
