package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Bucket is the journal bucket of the claims' records, keyed by [Key.String].
const Bucket = "claims"

// Defaults of [Config].
const (
	// DefaultDeadline bounds one call of the Controller service. Backends take minutes to make a
	// volume, and a call that timed out has to be made again.
	DefaultDeadline = 5 * time.Minute
	// DefaultMaxCalls limits the calls in flight to one driver that create, expand or modify
	// volumes.
	DefaultMaxCalls = 16
)

// Errors of [Controller.Delete].
var (
	// ErrNotFound means that there is no such claim.
	ErrNotFound = errors.New("no such claim")
	// ErrListed means that a source still lists the claim, so its volume would be made again.
	ErrListed = errors.New("a source still lists the claim; remove it there first")
	// ErrInUse means that a pod wants the claim, that its volume is in use on this node, or that
	// something is to be made of it.
	ErrInUse = errors.New("in use")
	// ErrUnreadable means that the record cannot be read, so what to delete is unknown.
	ErrUnreadable = errors.New("its record cannot be read")
	// ErrRetained means that the reclaim policy keeps the volume and its data.
	ErrRetained = errors.New("its reclaimPolicy is Retain")
)

// ErrNoSecret is the error of a [SecretReader] about a secret that does not exist.
var ErrNoSecret = errors.New("not found")

// errStopped means that Run has returned.
var errStopped = errors.New("the controller has stopped")

// KV stores records durably. Both journals of pkg/state implement it.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none, before it returns. A nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// SecretReader reads the current values of a secret. Its error wraps ErrNoSecret if it is known that there is none.
type SecretReader interface {
	Secret(ctx context.Context, ref state.SecretRef) (map[string]string, error)
}

// Usage reports who uses a volume. It answers at once, from memory, and must not call the
// Controller. All methods return a name for people ("pod default/web"), or "" if there is no user.
type Usage interface {
	// Wanted reports which pod the sources say uses the claim.
	Wanted(claim Key) string
	// InUse reports who on this node has, or may have, the volume. name is the name of its
	// PersistentVolume.
	InUse(id state.VolumeID, name string) string
	// Listed reports which PersistentVolume of another name and for another claim has the volume.
	Listed(claim Key, id state.VolumeID, name string) string
}

// Freezer freezes a volume's file system on this node.
type Freezer interface {
	// Freeze freezes the file system for at most limit. thaw ends the freeze, returns once the file
	// system accepts writes again, and reports whether the freeze had expired before. Freeze does
	// nothing for a volume that is not mounted on this node.
	Freeze(ctx context.Context, id state.VolumeID, limit time.Duration,
	) (thaw func(context.Context) (expired bool), err error)
	// Run ends the freezes that an earlier daemon left behind, and all others when ctx ends.
	// Nothing is frozen before Run is called.
	Run(ctx context.Context) error
}

// Config configures a [Controller]. KV, Secrets and Usage must be set.
type Config struct {
	KV      KV
	Secrets SecretReader
	Usage   Usage
	// Freezer freezes file systems for snapshots that ask for it. If it is nil, those fail.
	Freezer Freezer
	// StorageID returns the node's storage id, which the names of new volumes and snapshots follow from,
	// or why it is missing; then none are made. Nil, or an id of "", means that names follow from UIDs
	// alone.
	StorageID func(context.Context) (id, missing string, err error)
	// Deadline bounds each call; zero means DefaultDeadline.
	Deadline time.Duration
	// MaxCalls limits the calls in flight to one driver; zero means DefaultMaxCalls.
	MaxCalls int
	// OnDemand asks a driver for its capabilities only once a claim or snapshot here needs it,
	// because in a cluster sidecars call its Controller service.
	OnDemand bool
	// Lost reports whether the journal may have lost records and no operator has accepted that: then the
	// Controller carries out no deletion that it read from the journal. nil means never.
	Lost func() bool
	// Logger is where the Controller logs; nil discards.
	Logger *slog.Logger
}

// Controller creates and manages the volumes of claims.
type Controller struct {
	cfg Config
	log *slog.Logger

	// mu guards inbox and stopped.
	mu      sync.Mutex
	inbox   []func(ctx context.Context)
	stopped bool
	wake    chan struct{} // capacity 1: a signal, not a queue
	done    chan struct{} // closed when Run returns

	naming atomic.Pointer[naming] // nil until it is chosen, which is before Run

	// Owned by Run.
	claims  table[*entry]
	drivers map[state.DriverName]*driver
	absent  map[state.DriverName]Absence // why one is not among drivers; without an entry it is not registered
	handles map[state.VolumeID]Key       // by handle, once a volume exists
	clones  map[Key]map[Key]struct{}     // a claim's key to the claims that will be its clones
	slots   map[state.DriverName]*slots
	calls   sync.WaitGroup // the goroutines that Run started

	snapshots snapshots          // owned by Run
	groups    table[*groupEntry] // owned by Run

	nodeIDs nodeIDs

	view view
}

// New returns a Controller, which does nothing until Run.
func New(cfg Config) *Controller {
	if cfg.Deadline == 0 {
		cfg.Deadline = DefaultDeadline
	}
	if cfg.MaxCalls == 0 {
		cfg.MaxCalls = DefaultMaxCalls
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Controller{
		cfg: cfg, log: cfg.Logger,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		claims:  newTable(func(key Key) *entry { return &entry{row: newRow[record](key)} }),
		drivers: map[state.DriverName]*driver{}, absent: map[state.DriverName]Absence{},
		handles: map[state.VolumeID]Key{}, clones: map[Key]map[Key]struct{}{},
		slots:   map[state.DriverName]*slots{},
		nodeIDs: nodeIDs{now: map[state.DriverName]string{}, of: map[state.DriverName]map[string]string{}},
		view:    newView(), snapshots: newSnapshots(),
		groups: newTable(func(key Key) *groupEntry { return &groupEntry{row: newRow[groupRecord](key)} }),
	}
	if cfg.StorageID == nil {
		c.NameByUID()
	}
	return c
}

// NameByUID lets names follow from UIDs alone, where none are formed: for records that are only looked at.
func (c *Controller) NameByUID() { c.naming.Store(&naming{}) }

// ChooseStorageID asks for the node's storage id. It is called once, before Run.
func (c *Controller) ChooseStorageID(ctx context.Context) error {
	if c.cfg.StorageID == nil {
		return nil
	}
	id, missing, err := c.cfg.StorageID(ctx)
	if err == nil {
		c.naming.Store(&naming{storage: id, missing: missing})
	}
	return err
}

// SetClaim records that a source lists claim, with its class resolved. It replaces the previous
// state of the claim.
func (c *Controller) SetClaim(claim Claim) {
	claim = claim.clone()
	c.post(func(context.Context) {
		e := c.claims.entry(claim.Key)
		if e.want.Listed && e.want.Claim.equal(claim) {
			return
		}
		claim.naming = *c.naming.Load()
		e.want.Claim, e.want.Listed = claim, true
		if claim.Source.ofClaim() {
			c.addClone(claim.Source.Claim, claim.Key)
		}
		e.rec = clearPauses(e.rec)
		c.claims.touch(claim.Key)
		c.claims.touch(e.rec.Spec.Source.Claim) // it may wait for this claim to be listed or deleted
	})
}

// RemoveClaim records that no source lists the claim any longer. Its volume is kept.
func (c *Controller) RemoveClaim(key Key) {
	c.post(func(context.Context) {
		if e := c.claims.entries[key]; e != nil && e.want.Listed {
			e.want.Claim, e.want.Listed = Claim{}, false
			c.claims.touch(key)
			c.claims.touch(e.rec.Spec.Source.Claim)
		}
	})
}

// NodeSize records the size that the node serves the volume with after a successful
// NodeExpandVolume.
func (c *Controller) NodeSize(id state.VolumeID, bytes int64) {
	c.post(func(context.Context) {
		e := c.claims.entries[c.handles[id]]
		if e == nil || e.rec.Volume.Phase != state.Present || bytes <= e.rec.NodeBytes {
			return
		}
		e.rec.NodeBytes, e.unsaved = bytes, true
		c.claims.touch(e.key)
	})
}

// UsageChanged plans the volume's claim again because the answer of [Usage] may have changed.
func (c *Controller) UsageChanged(id state.VolumeID) {
	c.post(func(context.Context) {
		if key, ok := c.handles[id]; ok {
			c.claims.touch(key)
		}
	})
}

// AllUsageChanged is UsageChanged for all volumes.
func (c *Controller) AllUsageChanged() {
	c.post(func(context.Context) {
		for key := range c.claims.entries {
			c.claims.touch(key)
		}
	})
}

// RetryNow ends the claim's back-off after a failure.
func (c *Controller) RetryNow(key Key) {
	c.post(func(context.Context) {
		if e := c.claims.entries[key]; e != nil {
			e.rec = clearPauses(e.rec)
			c.claims.touch(key)
		}
	})
}

// Delete deletes the claim's volume and the data in it. Its error wraps ErrNotFound, ErrListed,
// ErrInUse, ErrUnreadable or, if the reclaim policy is Retain and retained is false, ErrRetained.
// Once Delete has returned nil, the deletion is durable and cannot be undone: the driver is asked
// until it confirms that the volume is gone. Until then [Controller.Claims] lists the claim and
// says what the deletion waits for.
func (c *Controller) Delete(ctx context.Context, key Key, retained bool) error {
	if err := c.do(ctx, func(run context.Context) error { return c.delete(run, key, retained) }); err != nil {
		return fmt.Errorf("delete claim %s: %w", key, err)
	}
	return nil
}

// do runs f in Run's goroutine, unless ctx ends first, and returns its result. If do returns the
// error of ctx, f may still run later.
func (c *Controller) do(ctx context.Context, f func(run context.Context) error) error {
	reply := make(chan error, 1) // buffered: Run does not wait for a caller that gave up
	c.post(func(run context.Context) {
		if ctx.Err() == nil {
			reply <- f(run)
		}
	})
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return errStopped
	}
}

// delete is Delete in Run's goroutine.
func (c *Controller) delete(ctx context.Context, key Key, retained bool) error {
	e := c.claims.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.want.Listed:
		return ErrNotFound
	case e.unreadable != "":
		return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.rec.Delete:
		c.claims.touch(key)
		return askAgain(c, &e.row, e.want.Listed)
	case e.want.Listed:
		return ErrListed
	case e.rec.Spec.Reclaim == Retain && e.rec.Volume.Phase != state.Absent && !retained:
		return fmt.Errorf("%w: volume %s", ErrRetained, e.rec.Name)
	}
	if err := c.checkUnused(e); err != nil {
		return err
	}
	rec := e.rec
	rec.Delete, rec.Volume.Failed = true, nil
	if err := claimBucket().commit(ctx, c.cfg, map[Key]record{key: rec}); err != nil {
		return err
	}
	e.rec, e.old = rec, false
	c.claims.touch(key)
	return nil
}

// checkUnused returns an error that wraps ErrInUse if a pod uses or wants e's volume, or if something
// is to be made of it.
func (c *Controller) checkUnused(e *entry) error {
	if err := c.checkUnwanted(e); err != nil {
		return err
	}
	if by := c.listed(e); by != "" {
		return fmt.Errorf("%w: %s is of the same volume %s, whose data goes with this claim", ErrInUse, by, e.rec.Handle)
	}
	if e.rec.Attach != state.Absent {
		return fmt.Errorf("%w: volume %s is attached to this node", ErrInUse, e.rec.Name)
	}
	return nil
}

// checkUnwanted returns an error that wraps ErrInUse if a pod uses or wants e's volume, or if something
// is to be made of it.
func (c *Controller) checkUnwanted(e *entry) error {
	if by := c.cfg.Usage.Wanted(e.key); by != "" {
		return fmt.Errorf("%w: %s wants it", ErrInUse, by)
	}
	if by := c.inUse(e); by != "" {
		return fmt.Errorf("%w: %s has volume %s", ErrInUse, by, e.rec.Name)
	}
	if by := c.needed(e); by != "" {
		return fmt.Errorf("%w: %s is to be made of volume %s", ErrInUse, by, e.rec.Name)
	}
	return nil
}

// post queues f for Run's goroutine. It never blocks.
func (c *Controller) post(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.inbox = append(c.inbox, f)
	select {
	case c.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

func (c *Controller) takeInbox() []func(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inbox := c.inbox
	c.inbox = nil
	return inbox
}

// addClone notes that the claim clone will be a clone of the claim source.
func (c *Controller) addClone(source, clone Key) {
	if c.clones[source] == nil {
		c.clones[source] = map[Key]struct{}{}
	}
	c.clones[source][clone] = struct{}{}
}

// clonesOf returns the claims that will be clones of source, sorted.
func (c *Controller) clonesOf(source Key) []Key {
	return slices.SortedFunc(maps.Keys(c.clones[source]), Key.compare)
}
