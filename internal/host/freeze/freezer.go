package freeze

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Journal stores freezes durably.
type Journal interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none, before it returns. A nil value
	// deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Helpers runs calls that may hang ([*isolate.Pool] with [Helper]).
type Helpers interface {
	Do(ctx context.Context, key, name string, request []byte) ([]byte, error)
}

// Config is what a Freezer needs; every field is required.
type Config struct {
	Journal Journal
	Helpers Helpers
	// Mounts lists the mount table, as [mount.Kernel.List] does for "/".
	Mounts func(ctx context.Context) ([]mount.Entry, error)
	// Volumes lists the volumes that may be mounted on this node.
	Volumes func() []Volume
	// Pods is the directory below which volumes are mounted for pods.
	Pods string
	// Never are directories whose file systems must not be frozen.
	Never []string
	// Boot is the kernel's boot id: no freeze outlives a boot.
	Boot   string
	Logger *slog.Logger
}

// Freezer freezes file systems.
type Freezer struct {
	c     Config
	tasks sync.WaitGroup

	mu     sync.Mutex           // guards the fields below
	runCtx context.Context      // the context of Run; nil outside of Run
	owned  map[string]*freezing // by device, including freezes that an earlier daemon left
}

// New returns a Freezer.
func New(c Config) *Freezer { return &Freezer{c: c, owned: map[string]*freezing{}} }

// Run ends the freezes that an earlier daemon left, according to the journal, and every
// freeze when ctx ends. It returns when that is done or the last attempt has failed.
// Outside of Run, [Freezer.Freeze] fails.
func (f *Freezer) Run(ctx context.Context) error {
	left, err := f.load(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.runCtx = ctx
	for _, rec := range left {
		z := newFreezing(f, rec)
		f.owned[rec.Dev] = z
		f.tasks.Go(func() { z.thawUntilDone(ctx, true) })
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.runCtx = nil
	f.mu.Unlock()
	f.tasks.Wait()
	return nil
}

// Freeze freezes the volume's file system for at most limit, which begins with FIFREEZE
// and includes its wait for writers. It first waits, also for at most limit, until an
// earlier freeze of the file system is over. A volume that is not mounted here needs no
// freeze. Errors wrap ErrBusy, ErrUnable or ErrNever if the file system cannot be frozen.
// If ctx ends, so do the wait and the freeze.
//
// thaw ends the freeze and returns when the file system is writable again. It reports
// whether the freeze expired before, or is not known to have ended when thaw's context
// ends: a snapshot made meanwhile is then only crash-consistent. For a volume that was
// not mounted, it reports whether the volume is mounted now; it misses one that was
// mounted and unmounted in between.
func (f *Freezer) Freeze(ctx context.Context, id state.VolumeID, limit time.Duration,
) (thaw func(context.Context) (expired bool), err error) {
	z, err := f.freeze(ctx, id, limit)
	if err != nil {
		return nil, fmt.Errorf("freeze volume %s: %w", id, err)
	}
	return z.thawAndWait, nil
}

func (f *Freezer) place(id state.VolumeID) (place, error) {
	return placeOf(id, f.c.Volumes(), f.c.Pods)
}

func (f *Freezer) freeze(ctx context.Context, id state.VolumeID, limit time.Duration) (*freezing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the kernel did not freeze it within %s", limit))
	defer cancel()
	place, err := f.place(id)
	if err != nil {
		return nil, err
	}
	if place.Path == "" {
		return &freezing{f: f, rec: record{Volume: id}}, nil
	}
	entry, pin, err := f.pin(ctx, place)
	if err != nil {
		return nil, err
	}
	z := newFreezing(f, record{
		Version: version, Volume: id, Path: place.Path, Dev: mount.DeviceText(entry.Dev), FSType: entry.FSType,
		Boot: f.c.Boot,
	})
	z.pin = pin
	runCtx, err := f.claimWhenFree(ctx, z)
	if err != nil {
		return nil, errors.Join(err, pin.Close())
	}
	if err := f.write(ctx, z.rec); err != nil {
		f.unclaim(z)
		f.tasks.Done()
		return nil, errors.Join(err, pin.Close())
	}
	deadline := time.NewTimer(limit)
	go func() {
		defer f.tasks.Done()
		defer deadline.Stop()
		z.hold(runCtx, deadline.C)
	}()
	if err := z.awaitFrozen(ctx); err != nil {
		return nil, err
	}
	f.c.Logger.Info("file system is frozen", "volume", string(id), "path", place.Path, "limit", limit)
	return z, nil
}

// pin finds the volume's mount and opens it, because the kernel would unmount a frozen
// file system, and the next mount of its device would still be frozen. It reads the table
// again once the mount cannot change. It opens nothing that is not known to be local:
// resolving a path can wait for a server that is gone.
func (f *Freezer) pin(ctx context.Context, at place) (mount.Entry, *os.File, error) {
	before, err := f.look(ctx, at)
	if err != nil {
		return mount.Entry{}, nil, err
	}
	pin, err := os.OpenFile(at.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return mount.Entry{}, nil, err
	}
	entry, err := f.look(ctx, at)
	if err == nil && (entry.Dev != before.Dev || entry.ID != before.ID) {
		err = fmt.Errorf("another file system was mounted at %s meanwhile", at.Path)
	}
	if err != nil {
		return mount.Entry{}, nil, errors.Join(err, pin.Close())
	}
	return entry, pin, nil
}

func (f *Freezer) look(ctx context.Context, at place) (mount.Entry, error) {
	table, err := f.c.Mounts(ctx)
	if err != nil {
		return mount.Entry{}, err
	}
	return judge(table, at, f.c.Never)
}

// claimWhenFree registers z as the file system's freeze once the earlier one is over. It
// returns the context of Run, which then waits for z.
func (f *Freezer) claimWhenFree(ctx context.Context, z *freezing) (context.Context, error) {
	for {
		runCtx, earlier := f.claim(z)
		switch {
		case runCtx == nil:
			return nil, errors.New("csi-volmgr is starting or stopping")
		case earlier == nil:
			return runCtx, nil
		}
		select {
		case <-earlier.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("an earlier freeze of it, for volume %s, is not over: %w", earlier.rec.Volume,
				context.Cause(ctx))
		}
	}
}

// claim registers z as the file system's freeze, or returns the earlier one; runCtx is
// nil outside of Run.
func (f *Freezer) claim(z *freezing) (runCtx context.Context, earlier *freezing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if earlier = f.owned[z.rec.Dev]; earlier == nil && f.runCtx != nil {
		f.owned[z.rec.Dev] = z
		f.tasks.Add(1)
	}
	return f.runCtx, earlier
}

func (f *Freezer) unclaim(z *freezing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owned, z.rec.Dev)
}
