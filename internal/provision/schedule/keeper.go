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

// bucket is the journal's bucket for schedules.
const bucket = "schedules"

// version is the version of the records that this code writes.
const version = 1

// lookEvery is the longest time between two looks at the clock, which someone may set, and the
// pause after a failure.
const lookEvery = time.Minute

// callTime limits one step, so that no schedule waits for another one's driver.
const callTime = 10 * time.Second

// Errors of [Keeper.Remove], [Keeper.Set] and [Config].Delete.
var (
	// ErrNotFound means that there is no such schedule.
	ErrNotFound = errors.New("no such schedule")
	// ErrKept means that a snapshot's deletionPolicy is Retain.
	ErrKept = errors.New("its deletionPolicy is Retain")
	// ErrUnreadable means that the schedule's record cannot be read.
	ErrUnreadable = errors.New("its record cannot be read")
	// ErrOtherClaim means that the schedule is of another claim.
	ErrOtherClaim = errors.New("it is of claim")
	// ErrDeletes means that a lower Keep deletes snapshots, which the caller has to confirm.
	ErrDeletes = errors.New("to keep fewer deletes snapshots")
)

// Journal stores schedules durably.
type Journal interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable or none before it returns. A nil value deletes the
	// key.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Config configures a Keeper; every field is required.
type Config struct {
	Journal Journal
	// Snapshots returns all snapshots by namespace and name, and false while they are not all
	// known.
	Snapshots func() (map[string]map[string]Known, bool)
	// Volume returns the present volume of a claim; it has no ID while the claim has none.
	Volume func(namespace, claim string) Volume
	// Changed returns a channel that is closed when a result of Snapshots or Volume may have changed.
	Changed func() <-chan struct{}
	// Make requests a snapshot; repeating a request is not an error. Snapshots then includes it.
	Make func(ctx context.Context, s Schedule, name string) error
	// Delete deletes a snapshot of the schedule. It returns ErrKept if the snapshot must stay.
	Delete func(ctx context.Context, s Schedule, name string) error
	Logger *slog.Logger
}

// Status is the state of a schedule.
type Status struct {
	Schedule
	// Next is the next due time; zero while the schedule waits for something else.
	Next time.Time
	// Last is the due time of its last snapshot.
	Last time.Time
	// Snapshots lists the snapshots that it created, the oldest first.
	Snapshots []string
	// Left lists those that it created of another volume than the claim's, and neither counts nor
	// deletes.
	Left []string
	// Waits is what the schedule waits for; "" means nothing.
	Waits string
}

// Keeper runs schedules.
type Keeper struct {
	c Config

	mu         sync.Mutex // guards the fields below; held while a record is made durable
	loaded     bool       // the journal was read; nothing is written before
	rows       map[string]record
	unreadable map[string]string
	waits      map[string]action // what each schedule waits for
	failed     map[string]string // the last error of each schedule
	changed    chan struct{}
}

// New returns a Keeper that does nothing until Run is called.
func New(c Config) *Keeper {
	return &Keeper{
		c: c, rows: map[string]record{}, unreadable: map[string]string{}, waits: map[string]action{},
		failed: map[string]string{}, changed: make(chan struct{}),
	}
}

// load reads the journal once. The caller holds mu. Each exported method calls it first, because a
// client may call before Run, and Set would then replace a record that it has not seen.
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
			k.markUnreadable(key, err.Error())
			continue
		}
		k.rows[key] = r
	}
	for key, why := range values.Unreadable {
		k.markUnreadable(key, why)
	}
	k.loaded = true
	return nil
}

func (k *Keeper) markUnreadable(key, why string) {
	k.unreadable[key] = why
	k.c.Logger.Error("cannot read the record of a schedule", "schedule", key, "err", why)
}

func decode(key string, value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return record{}, fmt.Errorf("decode schedule %s: %w", key, err)
	}
	if r.Version != version || r.key() != key {
		return record{}, fmt.Errorf("decode schedule %s: found schedule %s in version %d, want version %d", key, r.key(),
			r.Version, version)
	}
	if err := r.Check(); err != nil {
		return record{}, fmt.Errorf("decode schedule %s: %w", key, err)
	}
	return r, nil
}

// Run runs the schedules until ctx ends. An error means that the journal could not be read.
func (k *Keeper) Run(ctx context.Context) error {
	k.mu.Lock()
	err := k.load(ctx)
	k.mu.Unlock()
	if err != nil {
		return err
	}
	for {
		changed, own := k.c.Changed(), k.scheduleChange()
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

// scheduleChange returns a channel that is closed when a schedule is set or removed.
func (k *Keeper) scheduleChange() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// step does what is due and returns the latest time for the next step.
func (k *Keeper) step(ctx context.Context) time.Time {
	at := time.Now().Add(lookEvery)
	k.mu.Lock()
	keys := slices.Sorted(maps.Keys(k.rows))
	k.mu.Unlock()
	if len(keys) == 0 {
		return at
	}
	all, known := k.c.Snapshots() // The list may be long, so it is read once for all schedules, and again after each step.
	for _, key := range keys {
		for done := 0; done < mostKept && known && ctx.Err() == nil && k.stepOne(ctx, key, all); done++ {
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

// stepOne does the next step of one schedule and reports whether it may do another one at once.
func (k *Keeper) stepOne(ctx context.Context, key string, all map[string]map[string]Known) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.rows[key]
	if !ok {
		return false
	}
	f := Facts{Snapshots: all[r.Namespace], Volume: k.c.Volume(r.Namespace, r.Claim)}
	a := next(r, f, time.Now())
	if k.waits[key] = a; a.verb == wait {
		return false
	}
	if a.verb == leave {
		k.c.Logger.Warn("snapshot leaves its schedule and stays: the claim has another volume now", "schedule", key,
			"snapshot", a.name, "claim", r.Claim, "was", f.Snapshots[a.name].Volume.String(), "is", f.Volume.String())
	}
	if err := k.act(ctx, r, a); err != nil {
		if k.failed[key] != err.Error() {
			k.c.Logger.Warn("schedule waits", "schedule", key, "err", err)
		}
		k.failed[key] = err.Error()
		return false
	}
	delete(k.failed, key)
	return a.verb != remove // the deletion must first show in Snapshots
}

// act does one step. The caller holds mu, which act releases while it calls Make or Delete.
func (k *Keeper) act(ctx context.Context, r record, a action) error {
	var do func(context.Context, Schedule, string) error
	switch a.verb {
	case apply:
		do = k.c.Make
	case remove:
		do = k.c.Delete
	case begin, forget, leave, wait:
	}
	if do != nil {
		k.mu.Unlock()
		within, cancel := context.WithTimeout(ctx, callTime)
		err := do(within, r.Schedule, a.name)
		cancel()
		k.mu.Lock()
		if errors.Is(err, ErrKept) {
			a.verb, err = forget, nil // the snapshot now belongs to the operator
		}
		if err != nil {
			return err
		}
		now, ok := k.rows[r.key()]
		if !ok {
			return nil // the schedule was removed meanwhile
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

// commit stores a record, first durably and then in k.rows. The caller holds mu.
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

// Set creates or changes a schedule durably. The schedule keeps the snapshots that it created. A
// lower Keep deletes some of them, which Set returns; it fails with ErrDeletes unless sure is set.
func (k *Keeper) Set(ctx context.Context, s Schedule, sure bool) (deletes []string, err error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.key(), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(ctx); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.key(), err)
	}
	if why := k.unreadable[s.key()]; why != "" {
		return nil, fmt.Errorf("schedule %s: %w: %s", s.key(), ErrUnreadable, why)
	}
	r, there := k.rows[s.key()]
	if there {
		if deletes, err = k.checkChange(r, s, sure); err != nil {
			return nil, fmt.Errorf("schedule %s: %w", s.key(), err)
		}
	}
	r.Schedule = s
	if err := k.commit(ctx, s.key(), r); err != nil {
		return nil, err
	}
	k.notifyChanged()
	return deletes, nil
}

// checkChange returns the snapshots that a change of r to s deletes, or why it is refused. The
// caller holds mu.
func (k *Keeper) checkChange(r record, s Schedule, sure bool) (deletes []string, err error) {
	if r.Claim != s.Claim {
		return nil, fmt.Errorf("%w %s, and one of claim %s needs another name; to end the one that there is (its snapshots "+
			"stay): csi-volmgr delete schedule %s -n %s", ErrOtherClaim, r.Claim, s.Claim, s.Name, s.Namespace)
	}
	if s.Keep >= r.Keep {
		return nil, nil
	}
	all, known := k.c.Snapshots()
	if !known {
		if sure {
			return nil, nil
		}
		return nil, fmt.Errorf("%w, and it is not known yet which: try again when every source of objects has answered",
			ErrDeletes)
	}
	deletes = beyond(r, Facts{Snapshots: all[s.Namespace], Volume: k.c.Volume(s.Namespace, s.Claim)}, s.Keep)
	if len(deletes) > 0 && !sure {
		return nil, fmt.Errorf("%w, %d of them if %d stay: %s", ErrDeletes, len(deletes), s.Keep,
			strings.Join(deletes, ", "))
	}
	return deletes, nil
}

// Remove removes a schedule, even if its record is unreadable. Its snapshots stay.
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
		s := Status{Schedule: r.Schedule, Last: r.Last, Snapshots: r.Made, Left: r.Left, Waits: k.failed[key]}
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
