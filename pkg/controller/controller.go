package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Bucket is the journal's bucket of records, by [Key.String].
const Bucket = "claims"

// Defaults of [Config].
const (
	// DefaultDeadline bounds one call of the Controller service. Backends take
	// minutes for a volume; a call that is given up is only made again.
	DefaultDeadline = 5 * time.Minute
	// DefaultMaxCalls is how many calls that make or expand volumes one driver gets at a time.
	DefaultMaxCalls = 16
)

// Errors of [Controller.Delete].
var (
	// ErrNotFound: there is no such claim.
	ErrNotFound = errors.New("no such claim")
	// ErrListed: a source still lists the claim, which would make its volume anew.
	ErrListed = errors.New("a source still lists the claim; remove it there first")
	// ErrInUse: a pod wants the claim, or its volume is in use on this node.
	ErrInUse = errors.New("in use")
	// ErrUnreadable: the claim's record cannot be read, so what to delete is not known.
	ErrUnreadable = errors.New("its record cannot be read")
	// ErrRetained: the volume and its data are to stay when the claim is deleted.
	ErrRetained = errors.New("its reclaimPolicy is Retain")
)

// errStopped: Run has returned.
var errStopped = errors.New("the controller has stopped")

// KV keeps records durably. Both journals of pkg/state are one.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none, before it returns. A nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// SecretReader reads a secret's values as they are now.
type SecretReader interface {
	Secret(ctx context.Context, ref state.SecretRef) (map[string]string, error)
}

// Usage is asked who has a volume. It answers at once, from what is known, and
// must not call the Controller. Both return "" for none, else a name for
// people ("pod default/web").
type Usage interface {
	// Wanted reports who, by the sources, is to have the claim.
	Wanted(claim Key) string
	// InUse reports who on this node has the volume, or may have it; name is that of
	// its PersistentVolume.
	InUse(id state.VolumeID, name string) string
}

// Freezer holds a volume's file system still on this node.
type Freezer interface {
	// Freeze does so for limit at the most. thaw ends it, and reports whether it had ended before;
	// it returns when the file system goes on. A volume that is not mounted here is still already.
	Freeze(ctx context.Context, id state.VolumeID, limit time.Duration,
	) (thaw func(context.Context) (expired bool), err error)
	// Run ends the freezes that a daemon before this one has left, and all others when ctx ends.
	// Nothing is frozen before it is called.
	Run(ctx context.Context) error
}

// Config is what a [Controller] needs. KV, Secrets and Usage must be set.
type Config struct {
	KV      KV
	Secrets SecretReader
	Usage   Usage
	// Freezer holds file systems still for snapshots that ask for it; nil refuses those.
	Freezer Freezer
	// Deadline bounds each call; zero means DefaultDeadline.
	Deadline time.Duration
	// MaxCalls limits the calls in flight to one driver; zero means DefaultMaxCalls.
	MaxCalls int
	// OnDemand: a driver is asked for its capabilities once a claim or a snapshot here is of it. A cluster
	// has sidecars that call its Controller service.
	OnDemand bool
	// Logger nil discards.
	Logger *slog.Logger
}

// Controller makes and keeps the volumes of claims.
type Controller struct {
	cfg Config
	log *slog.Logger

	// mu guards inbox and stopped.
	mu      sync.Mutex
	inbox   []func(ctx context.Context)
	stopped bool
	wake    chan struct{} // capacity 1: a signal, not a queue
	done    chan struct{} // closed when Run returns

	// Owned by Run.
	entries map[Key]*entry
	drivers map[state.DriverName]*driver
	dirty   map[Key]struct{}
	names   map[string]Key           // by record.Name
	handles map[state.VolumeID]Key   // by handle, once a volume exists
	clones  map[Key]map[Key]struct{} // by a claim, the claims that are to be clones of it
	slots   map[state.DriverName]*slots
	calls   sync.WaitGroup // the goroutines that Run started

	snapshots snapshots // owned by Run
	groups    groups    // owned by Run

	view view
}

// New returns a Controller. It does nothing until Run.
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
	return &Controller{
		cfg: cfg, log: cfg.Logger,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		entries: map[Key]*entry{}, drivers: map[state.DriverName]*driver{},
		dirty: map[Key]struct{}{}, names: map[string]Key{},
		handles: map[state.VolumeID]Key{}, clones: map[Key]map[Key]struct{}{},
		slots: map[state.DriverName]*slots{},
		view:  newView(), snapshots: newSnapshots(), groups: newGroups(),
	}
}

// SetClaim says that a source lists c, with its class resolved as it is now. It
// replaces what was said of the claim before.
func (c *Controller) SetClaim(claim Claim) {
	claim = claim.clone()
	c.post(func(context.Context) {
		e := c.entry(claim.Key)
		if e.want.Listed && e.want.Claim.equal(claim) {
			return
		}
		e.want.Claim, e.want.Listed = claim, true
		if claim.Source.ofClaim() {
			c.addClone(claim.Source.Claim, e)
		}
		e.rec = clearPauses(e.rec)
		c.touch(claim.Key)
		c.touch(e.rec.Spec.Source.Claim) // it may wait for this one's owner
	})
}

// RemoveClaim says that no source lists the claim. Its volume is kept.
func (c *Controller) RemoveClaim(key Key) {
	c.post(func(context.Context) {
		if e := c.entries[key]; e != nil && e.want.Listed {
			e.want.Claim, e.want.Listed = Claim{}, false
			c.touch(key)
			c.touch(e.rec.Spec.Source.Claim)
		}
	})
}

// NodeSize says that the node serves the volume with the given size now, since
// NodeExpandVolume succeeded.
func (c *Controller) NodeSize(id state.VolumeID, bytes int64) {
	c.post(func(context.Context) {
		e := c.entries[c.handles[id]]
		if e == nil || e.rec.Volume.Phase != state.Present || bytes <= e.rec.NodeBytes {
			return
		}
		e.rec.NodeBytes, e.unsaved = bytes, true
		c.touch(e.key)
	})
}

// UsageChanged says that [Usage] may answer otherwise than before for the volume.
func (c *Controller) UsageChanged(id state.VolumeID) {
	c.post(func(context.Context) {
		if key, ok := c.handles[id]; ok {
			c.touch(key)
		}
	})
}

// AllUsageChanged says so of every volume.
func (c *Controller) AllUsageChanged() {
	c.post(func(context.Context) {
		for key := range c.entries {
			c.touch(key)
		}
	})
}

// RetryNow ends the claim's wait after a failure.
func (c *Controller) RetryNow(key Key) {
	c.post(func(context.Context) {
		if e := c.entries[key]; e != nil {
			e.rec = clearPauses(e.rec)
			c.touch(key)
		}
	})
}

// Delete deletes the claim's volume and the data in it. It refuses with an
// error that wraps ErrNotFound, ErrListed, ErrInUse, ErrUnreadable, or, unless
// retained says that it may go too, ErrRetained for a volume that is to stay. Once it
// has returned nil the wish is durable and cannot be taken back: the driver is
// asked until it says that the volume is gone, and only then does [Controller.Claims]
// no longer list the claim. Until then it says what it waits for.
func (c *Controller) Delete(ctx context.Context, key Key, retained bool) error {
	if err := c.do(ctx, func(run context.Context) error { return c.delete(run, key, retained) }); err != nil {
		return fmt.Errorf("delete claim %s: %w", key, err)
	}
	return nil
}

// order has f run in Run's goroutine, unless ctx ends before, and returns its answer. After an error
// that is ctx's, f may run yet.
func (c *Controller) do(ctx context.Context, f func(run context.Context) error) error {
	reply := make(chan error, 1) // Run must not wait for a caller that gave up
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

// delete runs in Run's goroutine.
func (c *Controller) delete(ctx context.Context, key Key, retained bool) error {
	e := c.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.want.Listed:
		return ErrNotFound
	case e.unreadable != "":
		return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.rec.Delete:
		return nil
	case e.want.Listed:
		return ErrListed
	case e.rec.Spec.Reclaim == Retain && e.rec.Volume.Phase == state.Present && !retained:
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
	e.rec = rec
	c.touch(key)
	return nil
}

// unused returns an error that wraps ErrInUse where a pod has or wants e's volume.
func (c *Controller) checkUnused(e *entry) error {
	if by := c.cfg.Usage.Wanted(e.key); by != "" {
		return fmt.Errorf("%w: %s wants it", ErrInUse, by)
	}
	if by := c.inUse(e); by != "" {
		return fmt.Errorf("%w: %s has volume %s", ErrInUse, by, e.rec.Name)
	}
	if e.rec.Attach != state.Absent {
		return fmt.Errorf("%w: volume %s is attached to this node", ErrInUse, e.rec.Name)
	}
	return nil
}

// post hands f to Run's goroutine. It never blocks.
func (c *Controller) post(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.inbox = append(c.inbox, f)
	select {
	case c.wake <- struct{}{}:
	default: // a signal is pending already
	}
}

func (c *Controller) takeInbox() []func(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inbox := c.inbox
	c.inbox = nil
	return inbox
}

// addClone notes that e is to be a clone of the claim source.
func (c *Controller) addClone(source Key, e *entry) {
	if c.clones[source] == nil {
		c.clones[source] = map[Key]struct{}{}
	}
	c.clones[source][e.key] = struct{}{}
	e.sources = append(e.sources, source)
}

// clonesOf lists the claims that are to be clones of source, in order.
func (c *Controller) clonesOf(source Key) []Key {
	return slices.SortedFunc(maps.Keys(c.clones[source]), Key.compare)
}
