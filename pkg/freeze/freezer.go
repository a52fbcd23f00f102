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

	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Journal keeps freezes durably.
type Journal interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none, before it returns. A nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Helpers does calls that may hang ([*isolate.Pool] with [Helper]).
type Helpers interface {
	Do(ctx context.Context, key, name string, request []byte) ([]byte, error)
}

// Config is what a Freezer needs; every field is required.
type Config struct {
	Journal Journal
	Helpers Helpers
	// Mounts lists the mount table, as [mount.Kernel.List] of "/".
	Mounts func(ctx context.Context) ([]mount.Entry, error)
	// Volumes lists what may be mounted on this node.
	Volumes func() []Volume
	// Pods is the directory below which volumes are mounted for pods.
	Pods string
	// Never are directories whose file systems must go on.
	Never []string
	// Boot is the kernel's boot id: no freeze outlives a boot.
	Boot   string
	Logger *slog.Logger
}

// Freezer freezes file systems.
type Freezer struct {
	c     Config
	tasks sync.WaitGroup

	mu    sync.Mutex           // guards what follows
	life  context.Context      // of Run; nil before
	owned map[string]*freezing // by device; also what an earlier daemon left
}

// New returns a Freezer.
func New(c Config) *Freezer { return &Freezer{c: c, owned: map[string]*freezing{}} }

// Run ends the freezes that a daemon before this one has left, by what the journal says, and every
// freeze when ctx ends; it returns when that is done or was tried. [Freezer.Freeze] is refused
// before.
func (f *Freezer) Run(ctx context.Context) error {
	left, err := f.load(ctx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.life = ctx
	for _, rec := range left {
		z := newFreezing(f, rec)
		f.owned[rec.Dev] = z
		f.tasks.Go(func() { z.end(ctx, true) })
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.life = nil
	f.mu.Unlock()
	f.tasks.Wait()
	return nil
}

// Freeze holds the volume's file system still for limit at the most, which begins with FIFREEZE:
// its wait for writers counts. It waits for an earlier freeze of the file system, as long. A volume
// that is not mounted here is still already. Errors wrap ErrBusy, ErrUnable or ErrNever where the
// file system cannot be frozen; ctx ends the wait, and the freeze with it.
//
// thaw ends the freeze, and reports whether it was over before, or is not known to be over when its
// context ends: then what was cut meanwhile is what a crash leaves. It returns when the file system
// goes on. Of a volume that was not mounted it reports whether it is by then; one that was
// mounted and unmounted between the two looks is not seen.
func (f *Freezer) Freeze(ctx context.Context, id state.VolumeID, limit time.Duration,
) (thaw func(context.Context) (expired bool), err error) {
	z, err := f.freeze(ctx, id, limit)
	if err != nil {
		return nil, fmt.Errorf("freeze volume %s: %w", id, err)
	}
	return z.thawed, nil
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
		Version: version, Volume: id, Path: place.Path, Dev: device(entry.Dev), FSType: entry.FSType, Boot: f.c.Boot,
	})
	z.pin = pin
	life, err := f.await(ctx, z)
	if err != nil {
		return nil, errors.Join(err, pin.Close())
	}
	if err := f.write(ctx, z.rec); err != nil {
		f.forget(z)
		f.tasks.Done()
		return nil, errors.Join(err, pin.Close())
	}
	deadline := time.NewTimer(limit)
	go func() {
		defer f.tasks.Done()
		defer deadline.Stop()
		z.hold(life, deadline.C)
	}()
	if err := z.begun(ctx); err != nil {
		return nil, err
	}
	f.c.Logger.Info("file system is frozen", "volume", string(id), "path", place.Path, "limit", limit)
	return z, nil
}

// pin finds the volume's mount, and opens it: the kernel would unmount a file system that is
// frozen, and the next mount of its device would be frozen yet. The table is read again once it
// cannot change any more. Nothing is opened before it is known to be local: a path alone can wait
// for a server that is gone.
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
		err = fmt.Errorf("%s was mounted anew meanwhile", at.Path)
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

// await takes the file system for z once its earlier freeze is over, and returns the life of the
// Freezer, which then waits for z.
func (f *Freezer) await(ctx context.Context, z *freezing) (context.Context, error) {
	for {
		life, earlier := f.own(z)
		switch {
		case life == nil:
			return nil, errors.New("csi-volmgr is starting or stopping")
		case earlier == nil:
			return life, nil
		}
		select {
		case <-earlier.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("an earlier freeze of it, for volume %s, is not over: %w", earlier.rec.Volume,
				context.Cause(ctx))
		}
	}
}

// own takes the file system for z, or returns the freeze that has it; life is nil outside of Run.
func (f *Freezer) own(z *freezing) (life context.Context, earlier *freezing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if earlier = f.owned[z.rec.Dev]; earlier == nil && f.life != nil {
		f.owned[z.rec.Dev] = z
		f.tasks.Add(1)
	}
	return f.life, earlier
}

func (f *Freezer) forget(z *freezing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owned, z.rec.Dev)
}
