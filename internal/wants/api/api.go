package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is the name of this source.
const Name = "api"

// bucket is the journal's bucket for applied objects.
const bucket = "objects"

// ErrImmutable means that a change of an object is not allowed ([resolve.CheckChange]).
var ErrImmutable = errors.New("immutable fields")

// KV stores values durably; both journals of pkg/state implement it.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable or none; a nil value deletes the key.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Catalog receives the applied objects; [source.Catalog] implements it.
type Catalog interface {
	Apply(provider string, u source.Update) error
	Synced(provider string)
}

// Config configures a Provider.
type Config struct {
	KV      KV
	Catalog Catalog
	// SecretsDir is the directory for applied secrets, created if it does not exist; "" keeps
	// secrets in memory only.
	SecretsDir string
	// Logger may be nil.
	Logger *slog.Logger
}

// Change is the effect of applying an object.
type Change string

// Values of Change.
const (
	Created   Change = "created"
	Changed   Change = "changed"
	Unchanged Change = "unchanged"
)

// Result is the outcome for one object.
type Result struct {
	Key    source.Key `json:"key"`
	Change Change     `json:"change"`
}

// Provider holds the applied objects. See the package comment.
type Provider struct {
	config  Config
	logger  *slog.Logger
	secrets secretFiles
	// turn contains a token while no request is being served.
	turn chan struct{}

	// mu guards the fields below. Changing objects or unreadable also needs the token.
	mu         sync.Mutex
	objects    map[source.Key]runtime.Object
	waiting    []*request // waiting for the token; bounded by the number of blocked callers
	unreadable map[source.Key]string
	shared     shared
	// loaded is set when Load has succeeded, spoken when the catalog knows that it has all objects.
	loaded, spoken bool
}

// New returns a Provider without objects; Load reads them.
func New(c Config) *Provider {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{
		config: c, logger: c.Logger, secrets: secretFiles{dir: c.SecretsDir}, turn: make(chan struct{}, 1),
		objects: map[source.Key]runtime.Object{}, unreadable: map[source.Key]string{},
	}
	p.turn <- struct{}{}
	return p
}

// acquire waits for the token.
func (p *Provider) acquire(ctx context.Context) (release func(), err error) {
	select {
	case <-p.turn:
		return func() { p.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Load reads the objects that were applied before and delivers them to the catalog. It declares the
// source synced unless a pod could not be read. After an error, Load has had no effect and may
// be called again.
func (p *Provider) Load(ctx context.Context) error {
	release, err := p.acquire(ctx)
	if err != nil {
		return fmt.Errorf("load applied objects: %w", err)
	}
	defer release()
	return p.load(ctx)
}

// load is Load; the caller has the token. A request that is served before Load was called
// calls it first: what may not be changed is not known before.
func (p *Provider) load(ctx context.Context) error {
	p.mu.Lock()
	loaded := p.loaded
	p.mu.Unlock()
	if loaded {
		return nil
	}
	values, err := p.config.KV.LoadBucket(ctx, bucket)
	if err != nil {
		return fmt.Errorf("load applied objects: %w", err)
	}
	secrets, damaged, err := p.secrets.load()
	if err != nil {
		return fmt.Errorf("load applied secrets: %w", err)
	}
	sound := maps.Clone(values.Sound)
	if sound == nil {
		sound = map[string][]byte{}
	}
	maps.Copy(sound, secrets)
	all := decodeAll(sound)
	for _, name := range slices.Sorted(maps.Keys(values.Unreadable)) {
		all = append(all, kept{name: name, key: keyOf(name), err: errors.New(values.Unreadable[name])})
	}
	for _, file := range slices.Sorted(maps.Keys(damaged)) {
		all = append(all, kept{key: source.Key{Kind: resolve.KindSecret, Name: file}, err: damaged[file]})
	}
	p.mu.Lock()
	u := source.Update{Unreadable: map[source.Key]string{}}
	for _, k := range all {
		if k.err != nil {
			p.unreadable[k.key] = k.err.Error()
			u.Unreadable[k.key] = notReadable(k.key, k.err.Error())
			p.logger.Error("applied object not readable", "object", k.key.String(), "err", k.err)
			continue
		}
		p.shared.object(k.obj)
		p.objects[k.key] = k.obj
		u.Put = append(u.Put, k.obj)
	}
	p.loaded = true
	p.mu.Unlock()
	return p.applyUpdate(u)
}

// applyUpdate delivers checked objects to the catalog. It declares the source synced once all
// objects are loaded and every pod among them is readable.
func (p *Provider) applyUpdate(u source.Update) error {
	u.Checked = true
	err := p.config.Catalog.Apply(Name, u)
	p.mu.Lock()
	speak := p.loaded && !p.spoken && !hidesPod(maps.Keys(p.unreadable))
	p.spoken = p.spoken || speak
	p.mu.Unlock()
	if speak {
		p.config.Catalog.Synced(Name)
	}
	return err
}

// Apply adds or replaces objects as [manifest.Decode] returns them. They are durable when it
// returns. If any object fails [resolve.Check], or two have the same key, Apply changes nothing.
// The Provider takes over claims and volumes, and callers must not modify them afterwards. If a
// write fails midway, the error names the objects that are not in effect; the others are.
func (p *Provider) Apply(ctx context.Context, objects []runtime.Object) ([]Result, error) {
	keys, err := check(objects)
	if err != nil {
		return nil, err
	}
	r := &request{done: make(chan struct{})}
	for i, key := range keys {
		value, err := encode(objects[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		r.items = append(r.items, item{key, objects[i], value})
	}
	if err := p.do(ctx, r); err != nil {
		return r.results, fmt.Errorf("apply: %w", err)
	}
	return r.results, nil
}

// change returns the effect that applying obj will have.
func (p *Provider) change(key source.Key, obj runtime.Object) Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, ok := p.objects[key]
	switch {
	case !ok:
		return Created
	case equality.Semantic.DeepEqual(old, obj):
		return Unchanged
	}
	return Changed
}

func check(objects []runtime.Object) ([]source.Key, error) {
	var errs []error
	var keys []source.Key
	seen := map[source.Key]bool{}
	for _, obj := range objects {
		key, err := resolve.KeyOf(obj)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, f := range resolve.Check(obj) {
			errs = append(errs, fmt.Errorf("%s: %s", key, f))
		}
		if seen[key] {
			errs = append(errs, fmt.Errorf("%s: found twice, want it once", key))
		}
		seen[key] = true
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

// commit makes the items durable, deleting those without an object, and delivers those that
// succeeded to the catalog.
func (p *Provider) commit(ctx context.Context, items []item) error {
	items = slices.SortedFunc(slices.Values(items), func(a, b item) int { return a.key.Compare(b.key) })
	values := map[string][]byte{}
	var done source.Update
	var errs []error
	for _, it := range items {
		if it.key.Kind != resolve.KindSecret {
			values[nameOf(it.key)] = it.value
		} else if err := p.secrets.write(nameOf(it.key), it.value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", it.key, err))
		} else {
			p.note(&done, it)
		}
	}
	if len(values) > 0 && len(errs) == 0 {
		if err := p.config.KV.CommitBucket(ctx, bucket, values); errors.Is(err, state.ErrFull) {
			errs = append(errs, err)
		} else if err != nil {
			errs = append(errs, fmt.Errorf("store objects: %w", err))
		}
	}
	failed := len(errs) > 0
	for _, it := range items {
		switch {
		case it.key.Kind == resolve.KindSecret:
		case failed:
			errs = append(errs, fmt.Errorf("%s: not in effect", it.key))
		default:
			p.note(&done, it)
		}
	}
	if len(done.Put)+len(done.Delete) > 0 {
		errs = append(errs, p.applyUpdate(done))
	}
	return errors.Join(errs...)
}

// note stores the durable item in p and adds it to u.
func (p *Provider) note(u *source.Update, it item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unreadable, it.key)
	if file := fileKey(it.key); it.key.Kind == resolve.KindSecret && p.unreadable[file] != "" {
		delete(p.unreadable, file)
		u.Delete = append(u.Delete, file)
	}
	if it.object == nil {
		delete(p.objects, it.key)
		u.Delete = append(u.Delete, it.key)
		return
	}
	p.shared.object(it.object)
	p.objects[it.key] = it.object
	u.Put = append(u.Put, it.object)
}

// Delete durably removes an applied object. For a pod, it means that the caller knows that the
// pod's containers have ended. The error wraps [source.ErrNotFound] if there is no such object.
func (p *Provider) Delete(ctx context.Context, key source.Key) error {
	err := p.do(ctx, &request{items: []item{{key: key}}, done: make(chan struct{})})
	if err != nil && !errors.Is(err, source.ErrNotFound) {
		return fmt.Errorf("delete: %w", err)
	}
	return err
}

// Problems lists the applied objects that could not be read, sorted.
func (p *Provider) Problems() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var problems []source.Problem
	for _, key := range slices.SortedFunc(maps.Keys(p.unreadable), source.Key.Compare) {
		text := problem(key, p.unreadable[key])
		problems = append(problems, source.Problem{Provider: Name, Where: key.String(), Text: text})
	}
	return problems
}

// nameOf returns the key under which an object is stored.
func nameOf(k source.Key) string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

func keyOf(name string) source.Key {
	kind, rest, _ := strings.Cut(name, "/")
	namespace, name, _ := strings.Cut(rest, "/")
	return source.Key{Kind: kind, Namespace: namespace, Name: name}
}

// encode returns the stored form of the object. A secret's is JSON.
func encode(obj runtime.Object) ([]byte, error) {
	if _, ok := obj.(*corev1.Secret); ok {
		return manifest.Encode(obj)
	}
	return manifest.Keep(obj)
}

// kept is a stored object, or the error from reading it.
type kept struct {
	name string // as returned by nameOf
	key  source.Key
	obj  runtime.Object
	err  error
}

// fewAtOnce is how many objects a goroutine decodes at a time. Pods take longest and come last, so
// small shares let a busy processor take fewer of them.
const fewAtOnce = 32

// decodeAll decodes the stored objects, in the order of their names, on all processors. It is what
// a starting node waits for longest.
func decodeAll(values map[string][]byte) []kept {
	all := make([]kept, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, kept{name: name})
	}
	shares := make(chan []kept, len(all)/fewAtOnce+1)
	for share := range slices.Chunk(all, fewAtOnce) {
		shares <- share
	}
	close(shares)
	var workers sync.WaitGroup
	for range goruntime.GOMAXPROCS(0) {
		workers.Go(func() {
			for share := range shares {
				for i := range share {
					k := &share[i]
					k.key, k.obj, k.err = decode(k.name, values[k.name])
				}
			}
		})
	}
	workers.Wait()
	return all
}

// decode decodes one stored object, whose key must match the one it is stored under.
func decode(name string, value []byte) (source.Key, runtime.Object, error) {
	key := keyOf(name)
	objects, err := manifest.Reload(name, value)
	if err != nil {
		return key, nil, err
	}
	if len(objects) != 1 {
		return key, nil, fmt.Errorf("found %d objects, want one", len(objects))
	}
	if got, err := resolve.KeyOf(objects[0]); err != nil || got != key {
		return key, nil, fmt.Errorf("found %s under the key of another object", got)
	}
	return key, objects[0], nil
}
