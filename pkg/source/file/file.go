package file

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is the name of this source.
const Name = "file"

const (
	// DefaultSettle is long for an editor between removing a file and writing it
	// anew, and short for a person who removed one.
	DefaultSettle = time.Second
	// maxFiles is how many manifests a directory may have.
	maxFiles = 16384
	// A file that is being written is looked at again after a while, since its
	// kernel reports the writer's close a moment before it has happened.
	firstRetry = 10 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// KV keeps values durably; both journals of pkg/state do.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none; a nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Catalog takes the objects of the files; [source.Catalog] is one.
type Catalog interface {
	Apply(provider string, u source.Update) error
	Synced(provider string)
}

// Config is what a Provider needs.
type Config struct {
	// Dir is the directory. It need not be there, now or later.
	Dir     string
	Catalog Catalog
	// KV remembers what each file had when it was last good; nil for no memory.
	KV KV
	// Settle is how long a vanished file's objects are kept in case it comes
	// back; 0 means DefaultSettle.
	Settle time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Provider tells the catalog what is in the files. See the package comment.
type Provider struct {
	config Config
	logger *slog.Logger
	memory memory

	// Owned by Run.

	files map[string]*entry
	// having are the files that have an object, by its key.
	having map[source.Key]map[string]bool
	// odd are the files to come back to: busy, gone, or with a problem.
	odd map[string]*entry
	// shared are the keys that several files have.
	shared map[source.Key]bool
	// touched are the keys that changed since the last update of the catalog.
	touched map[source.Key]bool
	// applied are the objects that the catalog has.
	applied map[source.Key]runtime.Object
	spoken  bool
	// retry is the wait before busy files are looked at again.
	retry time.Duration

	// mu guards what follows.
	mu       sync.Mutex
	problems []source.Problem
	changed  chan struct{}
}

// entry is one file, or the memory of one.
type entry struct {
	stamp   stamp
	objects map[source.Key]runtime.Object
	// problem says why objects is not what the file says now; "" where it is.
	problem string
	// busy: a process is writing it.
	busy bool
	// good: it was read without a fault at least once, now or in an earlier run.
	good bool
	// lost: what it had in an earlier run cannot be read.
	lost bool
	// gone is when it was first missing; zero while it is there.
	gone time.Time
}

// New returns a Provider of nothing; Run reads the directory.
func New(c Config) *Provider {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Settle == 0 {
		c.Settle = DefaultSettle
	}
	c.Dir = filepath.Clean(c.Dir)
	return &Provider{
		config: c, logger: c.Logger, memory: memory{kv: c.KV},
		files: map[string]*entry{}, odd: map[string]*entry{},
		having: map[source.Key]map[string]bool{}, shared: map[source.Key]bool{}, touched: map[source.Key]bool{},
		applied: map[source.Key]runtime.Object{},
		changed: make(chan struct{}),
	}
}

// Problems lists what is wrong with the directory and its files, sorted.
func (p *Provider) Problems() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Changed returns a channel that is closed when Problems next change. Call it
// before Problems.
func (p *Provider) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// Run watches the directory until ctx ends, which is no error. An error means
// that it cannot watch or that its memory cannot be read; nothing was told then.
// It is to be called once.
func (p *Provider) Run(ctx context.Context) error {
	if err := p.remember(ctx); err != nil {
		return err
	}
	w, err := newWatcher(p.config.Dir)
	if err != nil {
		return err
	}
	var reader sync.WaitGroup
	reader.Go(func() { w.run(ctx) })
	defer func() {
		if err := w.close(); err != nil {
			p.logger.Warn("close watch", "err", err)
		}
		reader.Wait()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	p.scan(ctx, w)
	for {
		timer.Reset(p.wait())
		select {
		case <-ctx.Done():
			return nil
		case c := <-w.changes:
			if c.rescan {
				p.scan(ctx, w)
			} else {
				p.look(ctx, w, c.names)
			}
		case <-timer.C:
			p.look(ctx, w, p.due())
		}
	}
}

// remember takes over what the files had when they were last good.
func (p *Provider) remember(ctx context.Context) error {
	files, lost, err := p.memory.load(ctx)
	if err != nil {
		return fmt.Errorf("load the last good manifests: %w", err)
	}
	for name, objects := range files {
		p.files[name] = &entry{good: true}
		p.replace(name, objects)
	}
	for name, why := range lost {
		p.files[name] = &entry{lost: true}
		p.logger.Error("last good manifest not readable", "file", name, "err", why)
	}
	return nil
}

// wait returns how long nothing is to be looked at again without a change.
func (p *Provider) wait() time.Duration {
	const long = 1000 * time.Hour
	wait := time.Duration(long)
	for _, e := range p.odd {
		if e.busy {
			wait = min(wait, p.retry)
		}
		if !e.gone.IsZero() {
			wait = min(wait, max(0, p.config.Settle-time.Since(e.gone)))
		}
	}
	return wait
}

// due returns the files that are to be looked at again.
func (p *Provider) due() map[string]bool {
	names := map[string]bool{}
	for name, e := range p.odd {
		if e.busy || !e.gone.IsZero() {
			names[name] = false
		}
	}
	return names
}

// publish shows the problems, and logs those that are new.
func (p *Provider) publish(general string) {
	var problems []source.Problem
	if general != "" {
		problems = append(problems, source.Problem{Provider: Name, Where: p.config.Dir, Text: general})
	}
	for _, name := range slices.Sorted(maps.Keys(p.odd)) {
		if e := p.odd[name]; e.problem != "" {
			problems = append(problems, source.Problem{Provider: Name, Where: name, Text: e.problem})
		}
	}
	problems = append(problems, p.duplicates()...)
	p.mu.Lock()
	before := p.problems
	if !slices.Equal(before, problems) {
		p.problems = problems
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.mu.Unlock()
	for _, one := range problems {
		if !slices.Contains(before, one) {
			p.logger.Warn("manifest not used", "file", one.Where, "err", one.Text)
		}
	}
}
