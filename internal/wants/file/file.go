package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is the name of this source.
const Name = "file"

const (
	// DefaultSettle is long enough for an editor that removes a file and writes it again, and short
	// for a person who removed one.
	DefaultSettle = time.Second
	// maxFiles limits the manifests in a directory.
	maxFiles = 16384
	// A file that is being written is retried after a pause, since the kernel reports the writer's
	// close a moment before it has happened. A directory that cannot be read is retried, since the
	// kernel does not report that a file system was mounted over it.
	firstRetry = 10 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// KV stores values durably; both journals of pkg/state implement it.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable or none; a nil value deletes the key.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Catalog receives the objects of the files; [source.Catalog] implements it.
type Catalog interface {
	Apply(provider string, u source.Update) error
	Synced(provider string)
}

// Config configures a Provider.
type Config struct {
	// Dir is the directory. It need not exist, and may come and go.
	Dir     string
	Catalog Catalog
	// KV stores the last good state of each file; if it is nil, nothing is stored.
	KV KV
	// Settle is how long a vanished file's objects are kept in case it comes back; 0 means
	// DefaultSettle.
	Settle time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Provider delivers the objects of the files to the catalog. See the package comment.
type Provider struct {
	config Config
	logger *slog.Logger
	memory memory

	// Run owns the fields from here to mu.

	files map[string]*entry
	// having holds, by key, the names of the files that have the object.
	having map[source.Key]map[string]bool
	// odd holds the files that need another look: busy, gone, or with a problem.
	odd map[string]*entry
	// shared holds the keys that several files have.
	shared map[source.Key]bool
	// touched holds the keys that changed since the last update of the catalog.
	touched map[source.Key]bool
	// applied holds the objects that the catalog has.
	applied map[source.Key]runtime.Object
	spoken  bool
	// failed means that the directory could not be read, unwatched that it is read regularly, since
	// it cannot be watched.
	failed, unwatched bool
	// retry is the pause before busy files, or a directory that failed, are read again.
	retry time.Duration

	// mu guards the fields below.
	mu       sync.Mutex
	problems []source.Problem
	changed  chan struct{}
}

// entry is the state of one file. It may come from an earlier run.
type entry struct {
	stamp   stamp
	objects map[source.Key]runtime.Object
	// problem is why objects differs from the file's content; "" if it does not.
	problem string
	// busy means that a process is writing the file.
	busy bool
	// good means that the file was read without an error at least once, in this run or an earlier
	// one.
	good bool
	// lost means that the objects stored by an earlier run cannot be read.
	lost bool
	// gone is when the file was first found missing; zero if it exists.
	gone time.Time
}

// New returns a Provider without objects; Run reads the directory.
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

// Problems lists the problems with the directory and its files, sorted.
func (p *Provider) Problems() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Changed returns a channel that is closed when Problems next changes. Call it before Problems.
func (p *Provider) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// Run watches the directory until ctx ends, which is not an error. An error means that it cannot
// watch the directory or load the last good state; Run has not delivered anything then. Call it
// once.
func (p *Provider) Run(ctx context.Context) error {
	if err := p.restore(ctx); err != nil {
		return err
	}
	var changes chan change
	w, err := newWatcher(p.config.Dir)
	if err != nil && !errors.Is(err, errNoWatch) {
		return err
	}
	if w != nil {
		changes = w.changes
		var reader sync.WaitGroup
		reader.Go(func() { w.run(ctx) })
		defer func() {
			if err := w.close(); err != nil {
				p.logger.Warn("close watch", "err", err)
			}
			reader.Wait()
		}()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	p.scan(ctx, w)
	for {
		timer.Reset(p.wait())
		select {
		case <-ctx.Done():
			return nil
		case c := <-changes:
			if c.rescan {
				p.scan(ctx, w)
			} else {
				p.reread(ctx, w, c.names)
			}
		case <-timer.C:
			if p.failed || p.unwatched {
				p.scan(ctx, w)
			} else {
				p.reread(ctx, w, p.due())
			}
		}
	}
}

// restore loads the last good objects of each file.
func (p *Provider) restore(ctx context.Context) error {
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

// wait returns the time until a file or the directory is due without an event.
func (p *Provider) wait() time.Duration {
	if p.failed {
		return p.retry
	}
	wait := 1000 * time.Hour
	if p.unwatched {
		wait = lastRetry
	}
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

// due returns the files to read again.
func (p *Provider) due() map[string]bool {
	names := map[string]bool{}
	for name, e := range p.odd {
		if e.busy || !e.gone.IsZero() {
			names[name] = false
		}
	}
	return names
}

// publish updates Problems and logs new ones. general is a problem that concerns the directory, or
// "".
func (p *Provider) publish(general string) {
	var problems []source.Problem
	if general == "" && p.unwatched {
		general = fmt.Sprintf("%v; until then the directory is read every %v", errNoWatch, lastRetry)
	}
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
