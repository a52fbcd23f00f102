package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// bucket is the journal's bucket of schedules.
const bucket = "schedules"

// version is the version of a record that this code writes.
const version = 1

// lookEvery is how long a keeper goes without a look at the clock, which may be set; and
// how long it waits after what did not succeed.
const lookEvery = time.Minute

// callTime bounds one step, so that no schedule waits for another's driver.
const callTime = 10 * time.Second

// Errors of [Keeper.Remove], [Keeper.Set] and [Config].Delete.
var (
	// ErrNotFound: there is no such schedule.
	ErrNotFound = errors.New("no such schedule")
	// ErrKept: a snapshot's deletionPolicy is Retain.
	ErrKept = errors.New("its deletionPolicy is Retain")
	// ErrUnreadable: the schedule's record cannot be read.
	ErrUnreadable = errors.New("its record cannot be read")
)

// Journal keeps schedules durably.
type Journal interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none, before it returns. A nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Config is what a Keeper needs; every field is required.
type Config struct {
	Journal Journal
	// Snapshots returns what is known of all snapshots, by namespace and name; false while
	// that is not all.
	Snapshots func() (map[string]map[string]Known, bool)
	// Changed returns a channel that closes when Snapshots may return another answer.
	Changed func() <-chan struct{}
	// Make makes a snapshot wanted; one that is wanted already is no error. Snapshots returns it
	// from then on.
	Make func(ctx context.Context, s Schedule, name string) error
	// Delete deletes a snapshot of the schedule; ErrKept says that it is to stay.
	Delete func(ctx context.Context, s Schedule, name string) error
	Logger *slog.Logger
}

// Status is a schedule as it stands.
type Status struct {
	Schedule
	// Next is when it is due next; zero while it waits for something else.
	Next time.Time
	// Last is the moment that its last snapshot was due at.
	Last time.Time
	// Snapshots are those that it made, the oldest first.
	Snapshots []string
	// Waits says what keeps it from going on; "" for nothing.
	Waits string
}

// Keeper keeps schedules.
type Keeper struct {
	c Config

	mu         sync.Mutex // guards what follows, and is held while a record is made durable
	loaded     bool       // the journal was read; nothing is written before
	rows       map[string]record
	unreadable map[string]string
	waits      map[string]action // what each waits for
	failed     map[string]string // what did not succeed last
	changed    chan struct{}
}

// New returns a Keeper. It does nothing until Run.
func New(c Config) *Keeper {
	return &Keeper{
		c: c, rows: map[string]record{}, unreadable: map[string]string{}, waits: map[string]action{},
		failed: map[string]string{}, changed: make(chan struct{}),
	}
}

// load reads the journal, once. The caller holds mu. Each method that writes calls it first: a
// client may be quicker than Run, and would replace a record whose snapshots it does not know.
func (k *Keeper) load(ctx context.Context) error {
	if k.loaded {
		return nil
	}
	values, err := k.c.Journal.LoadBucket(ctx, bucket)
	if err != nil {
		return fmt.Errorf("load the schedules: %w", err)
	}
	for key, value := range values.Sound {
		r, err := decode(key, value)
		if err != nil {
			k.bad(key, err.Error())
			continue
		}
		k.rows[key] = r
	}
	for key, why := range values.Unreadable {
		k.bad(key, why)
	}
	k.loaded = true
	return nil
}

func (k *Keeper) bad(key, why string) {
	k.unreadable[key] = why
	k.c.Logger.Error("record of a schedule cannot be read", "schedule", key, "err", why)
}

func decode(key string, value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return record{}, fmt.Errorf("decode schedule %s: %w", key, err)
	}
	if r.Version != version || r.key() != key {
		return record{}, fmt.Errorf("decode schedule %s: it is of %s, version %d, want version %d", key, r.key(), r.Version,
			version)
	}
	if err := r.Check(); err != nil {
		return record{}, fmt.Errorf("decode schedule %s: %w", key, err)
	}
	return r, nil
}

// Run keeps the schedules until ctx ends. An error means that the journal could not be read.
func (k *Keeper) Run(ctx context.Context) error {
	k.mu.Lock()
	err := k.load(ctx)
	k.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		changed, own := k.c.Changed(), k.own()
		at := k.step(ctx)
		timer := time.NewTimer(min(max(time.Until(at), 0), lookEvery))
		select {
		case <-changed:
		case <-own:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// own is closed at the next change of a schedule.
func (k *Keeper) own() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// step does what is due, and returns when to look again at the latest.
func (k *Keeper) step(ctx context.Context) time.Time {
	at := time.Now().Add(lookEvery)
	k.mu.Lock()
	keys := slices.Sorted(maps.Keys(k.rows))
	k.mu.Unlock()
	if len(keys) == 0 {
		return at
	}
	all, known := k.c.Snapshots() // once for all schedules, and again after a step: there may be many
	for _, key := range keys {
		for done := 0; done < mostKept && known && ctx.Err() == nil && k.one(ctx, key, all); done++ {
			all, known = k.c.Snapshots()
		}
		k.mu.Lock()
		if w := k.waits[key]; w.verb == wait && !w.due.IsZero() && w.due.Before(at) {
			at = w.due
		}
		k.mu.Unlock()
	}
	return at
}

// one does the next step of a schedule, and reports whether there may be another at once.
func (k *Keeper) one(ctx context.Context, key string, all map[string]map[string]Known) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.rows[key]
	if !ok {
		return false
	}
	a := next(r, all[r.Namespace], time.Now())
	if k.waits[key] = a; a.verb == wait {
		return false
	}
	if err := k.act(ctx, r, a); err != nil {
		if k.failed[key] != err.Error() {
			k.c.Logger.Warn("schedule waits", "schedule", key, "err", err)
		}
		k.failed[key] = err.Error()
		return false
	}
	delete(k.failed, key)
	return a.verb != remove // the snapshot has to be seen to go
}

// act does one step. The caller holds mu, which is left while others are called.
func (k *Keeper) act(ctx context.Context, r record, a action) error {
	var do func(context.Context, Schedule, string) error
	switch a.verb {
	case apply:
		do = k.c.Make
	case remove:
		do = k.c.Delete
	case begin, forget, wait:
	}
	if do != nil {
		k.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, callTime)
		err := do(within, r.Schedule, a.name)
		cancel()
		k.mu.Lock()
		if errors.Is(err, ErrKept) {
			a.verb, err = forget, nil // it is the operator's from now on
		}
		if err != nil {
			return err
		}
		now, ok := k.rows[r.key()]
		if !ok {
			return nil // it was removed meanwhile
		}
		r = now
	}
	if a.verb == remove {
		k.c.Logger.Info("schedule deleted a snapshot", "schedule", r.key(), "snapshot", a.name, "keeps", r.Keep)
		return nil
	}
	if a.verb == begin {
		k.c.Logger.Info("schedule is due", "schedule", r.key(), "snapshot", a.name)
	}
	return k.commit(ctx, r.key(), after(r, a))
}

// commit makes a record durable and takes it over. The caller holds mu.
func (k *Keeper) commit(ctx context.Context, key string, r record) error {
	r.Version = version
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode schedule %s: %w", key, err)
	}
	if err := k.c.Journal.CommitBucket(ctx, bucket, map[string][]byte{key: value}); err != nil {
		return fmt.Errorf("write schedule %s: %w", key, err)
	}
	k.rows[key] = r
	return nil
}

// Set makes or changes a schedule, durably. The snapshots that it made stay its own.
func (k *Keeper) Set(ctx context.Context, s Schedule) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("schedule %s: %w", s.key(), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return fmt.Errorf("schedule %s: %w", s.key(), err)
	}
	if why := k.unreadable[s.key()]; why != "" {
		return fmt.Errorf("schedule %s: %w: %s", s.key(), ErrUnreadable, why)
	}
	r := k.rows[s.key()]
	r.Schedule = s
	if err := k.commit(ctx, s.key(), r); err != nil {
		return err
	}
	k.notifyChanged()
	return nil
}

// Remove ends a schedule. Its snapshots stay. A record that cannot be read goes too.
func (k *Keeper) Remove(ctx context.Context, namespace, name string) error {
	key := namespace + "/" + name
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return fmt.Errorf("remove schedule %s: %w", key, err)
	}
	if _, ok := k.rows[key]; !ok && k.unreadable[key] == "" {
		return fmt.Errorf("schedule %s: %w", key, ErrNotFound)
	}
	if err := k.c.Journal.CommitBucket(ctx, bucket, map[string][]byte{key: nil}); err != nil {
		return fmt.Errorf("remove schedule %s: %w", key, err)
	}
	delete(k.rows, key)
	delete(k.unreadable, key)
	delete(k.waits, key)
	delete(k.failed, key)
	k.notifyChanged()
	return nil
}

func (k *Keeper) notifyChanged() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Schedules lists the schedules by namespace and name. An error means that the journal could
// not be read.
func (k *Keeper) Schedules(ctx context.Context) ([]Status, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return nil, err
	}
	var all []Status
	for _, key := range slices.Sorted(maps.Keys(k.rows)) {
		r, a := k.rows[key], k.waits[key]
		s := Status{Schedule: r.Schedule, Last: r.Last, Snapshots: r.Made, Waits: k.failed[key]}
		if a.verb == wait && s.Waits == "" {
			s.Next, s.Waits = a.due, a.until
		}
		all = append(all, s)
	}
	for _, key := range slices.Sorted(maps.Keys(k.unreadable)) {
		s := Status{Waits: ErrUnreadable.Error() + ": " + k.unreadable[key]}
		s.Namespace, s.Name, _ = strings.Cut(key, "/")
		all = append(all, s)
	}
	return all, nil
}
