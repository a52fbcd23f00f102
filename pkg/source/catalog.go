package source

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Key names one object; its kinds are those of package resolve.
type Key = resolve.Key

// Sink takes what pods want; the manager is one. A pod's wants come in the
// order in which they were resolved.
type Sink interface {
	SetPod(state.PodWant)
	RemovePod(state.PodUID)
	// SourceSynced says that the provider has delivered all its objects.
	SourceSynced(name string)
}

// Config is what a Catalog needs.
type Config struct {
	// Layout, NodeName, Builtins and ClusterAttach are as in [resolve.Config].
	Layout        state.Layout
	NodeName      string
	Builtins      []state.DriverName
	ClusterAttach bool
	// NodeLabels, Allocatable and RevisionKey are as in [resolve.Config]; without a key one is drawn.
	NodeLabels  map[string]string
	Allocatable corev1.ResourceList
	RevisionKey []byte
	// SELinux, InlineAllow, Translate, Tokens and Certificates are as in [resolve.Config].
	SELinux      resolve.SELinux
	Tokens       bool
	Certificates bool
	InlineAllow  []resolve.InlineRule
	Translate    []string
	Sink         Sink
	// Remote is the provider that knows of an object only once it was asked for
	// it, as a cluster's API server is; "" for none. What a pod of it names is not
	// known, rather than not there, until the provider has told.
	Remote string
	// Demand hears what resolving a pod of Remote has looked up, sorted, every
	// time that this changed; nothing when the pod is gone. It is called while an
	// update is, so it must not call back into one, nor block.
	Demand func(pod Key, objects []Key)
	// Precedence lists providers; of two that have one key, the earlier holds.
	// Providers not in it come after those that are, by name. nil means file, api.
	Precedence []string
	// Logger may be nil.
	Logger *slog.Logger
}

// Update is what a provider tells at once.
type Update struct {
	Put []runtime.Object
	// Checked: the provider has had [resolve.Check] find nothing in any of Put.
	Checked bool
	Delete  []Key
	// Remote is what the provider [Config.Remote] knows besides; no other provider has any.
	Remote Remote
}

// Problem is something wrong with what a provider tells, for people.
type Problem struct {
	Provider string `json:"provider"`
	// Where is a file or an object.
	Where string `json:"where"`
	// Text says what is wrong. It never holds a secret's value.
	Text string `json:"text"`
}

// Catalog is all objects of all providers. See the package comment.
type Catalog struct {
	config  resolve.Config
	sink    Sink
	logger  *slog.Logger
	ranking []string

	// update serialises updates and the calls of the sink that they make.
	update sync.Mutex
	// mu guards what follows. It is never held while the sink is called.
	mu      sync.RWMutex
	objects map[string]map[Key]byProvider // by kind, so that to list one kind is no walk over all
	index   index
	notes   map[Key]string
	// bindings are the volumes that were chosen for claims.
	bindings  map[Key]resolve.Binding
	pods      map[Key]*pod
	users     map[Key]*smallSet[Key]
	uids      map[state.PodUID]*smallSet[Key]
	published map[state.PodUID]state.PodWant
	hear      []func(Key)
	remote    remote
}

// New returns an empty Catalog.
func New(c Config) *Catalog {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Precedence == nil {
		c.Precedence = []string{"file", "api"}
	}
	if c.RevisionKey == nil {
		c.RevisionKey = []byte(rand.Text())
	}
	return &Catalog{
		config: resolve.Config{
			NodeLabels: c.NodeLabels, Allocatable: c.Allocatable, RevisionKey: c.RevisionKey,
			Layout: c.Layout, NodeName: c.NodeName, Builtins: slices.Clone(c.Builtins),
			ClusterAttach: c.ClusterAttach, SELinux: c.SELinux, InlineAllow: c.InlineAllow, Translate: c.Translate,
			Tokens: c.Tokens, Certificates: c.Certificates,
		},
		sink:    c.Sink,
		logger:  c.Logger,
		ranking: slices.Clone(c.Precedence),
		objects: map[string]map[Key]byProvider{},
		index:   newIndex(),
		notes:   map[Key]string{}, bindings: map[Key]resolve.Binding{},
		pods:      map[Key]*pod{},
		users:     map[Key]*smallSet[Key]{},
		uids:      map[state.PodUID]*smallSet[Key]{},
		published: map[state.PodUID]state.PodWant{},
		remote:    newRemote(c.Remote, c.Demand),
	}
}

// Put adds or replaces one object of the provider. See Apply.
func (c *Catalog) Put(provider string, obj runtime.Object) error {
	return c.Apply(provider, Update{Put: []runtime.Object{obj}})
}

// Delete removes one object of the provider; for a pod this is the provider's
// statement that its containers have ended.
func (c *Catalog) Delete(provider string, key Key) {
	// An update without objects has nothing that could be refused.
	_ = c.Apply(provider, Update{Delete: []Key{key}})
}

// Apply makes all changes of u, then resolves each pod that any of them touches
// once. Objects that do not pass [resolve.Check] and [resolve.CheckChange] are left out, what was there
// under their key stays, and the error joins why; the others are applied.
func (c *Catalog) Apply(provider string, u Update) error {
	c.update.Lock()
	changed, err := c.store(provider, u)
	touched := c.touched(changed)
	c.resolve(touched)
	c.update.Unlock()
	c.announce(changed)
	return err
}

// Synced says that the provider has told all that it has.
func (c *Catalog) Synced(provider string) {
	c.update.Lock()
	defer c.update.Unlock()
	c.sink.SourceSynced(provider)
}

// SetClaimNote sets what people are told of a claim that is not bound: how far
// the making of its volume is. "" takes it away.
func (c *Catalog) SetClaimNote(claim Key, text string) {
	c.update.Lock()
	defer c.update.Unlock()
	c.mu.Lock()
	same := c.notes[claim] == text
	if text == "" {
		delete(c.notes, claim)
	} else {
		c.notes[claim] = text
	}
	c.mu.Unlock()
	if !same {
		c.resolve(c.touched([]Key{claim}))
	}
}

// SetBinding says which volume was chosen for a claim that names none, or why none was;
// zero is neither.
func (c *Catalog) SetBinding(claim Key, b resolve.Binding) {
	c.update.Lock()
	c.mu.Lock()
	same := c.bindings[claim] == b
	if b == (resolve.Binding{}) {
		delete(c.bindings, claim)
	} else {
		c.bindings[claim] = b
	}
	c.mu.Unlock()
	if !same {
		c.resolve(c.touched([]Key{claim}))
	}
	c.update.Unlock()
	if !same {
		c.announce([]Key{claim})
	}
}

// Subscribe has f called for every object that was added, changed or removed,
// once for each update at most, after the pods were resolved and outside of
// every lock: f may call back, and looks up how things stand by then.
func (c *Catalog) Subscribe(f func(Key)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hear = append(c.hear, f)
}

func (c *Catalog) announce(changed []Key) {
	c.mu.RLock()
	hear := slices.Clone(c.hear)
	c.mu.RUnlock()
	for _, key := range changed {
		for _, f := range hear {
			f(key)
		}
	}
}

// store changes the objects and returns, sorted, the keys whose object that
// holds is another now.
func (c *Catalog) store(provider string, u Update) ([]Key, error) {
	all := checkAll(u)
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := map[Key]bool{}
	for _, key := range slices.Concat(u.Delete, u.Remote.Forget) {
		if c.set(provider, key, nil) {
			changed[key] = true
		}
	}
	for _, key := range c.remote.learn(provider, u) {
		changed[key] = true
	}
	var errs []error
	for i, obj := range u.Put {
		key, faults, err := all[i].key, all[i].faults, all[i].err
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if faults = append(faults, resolve.CheckChange(c.under(key).of(provider), obj)...); len(faults) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s", key, faults[0]))
			if c.remote.delivered(provider, key, "refused: "+faults[0].String()) {
				changed[key] = true
			}
			continue
		}
		known := c.remote.delivered(provider, key, "")
		if c.set(provider, key, obj) || known {
			changed[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(changed), Key.Compare), errors.Join(errs...)
}

// set stores the provider's object, nil for none, and reports whether the
// object that holds under the key changed by it.
func (c *Catalog) set(provider string, key Key, obj runtime.Object) bool {
	was := c.holder(key)
	before := len(c.under(key))
	all := c.under(key).with(provider, obj)
	if len(all) == 0 {
		delete(c.objects[key.Kind], key)
	} else {
		if c.objects[key.Kind] == nil {
			c.objects[key.Kind] = map[Key]byProvider{}
		}
		c.objects[key.Kind][key] = all
	}
	if len(all) > 1 && len(all) > before {
		c.logger.Warn("object told by several sources", "object", key.String(), "holds", c.first(all))
	}
	is := c.holder(key)
	if was == is || was != nil && is != nil && equality.Semantic.DeepEqual(was, is) {
		return false
	}
	c.index.replace(key, was, is)
	return true
}

// under are the providers' objects under the key.
func (c *Catalog) under(key Key) byProvider { return c.objects[key.Kind][key] }

// holder returns the object that holds under the key, nil for none.
func (c *Catalog) holder(key Key) runtime.Object {
	all := c.under(key)
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0].object
	}
	return all.of(c.first(all))
}

// first returns which of the providers comes first.
func (c *Catalog) first(all byProvider) string {
	rank := func(p string) int {
		if i := slices.Index(c.ranking, p); i >= 0 {
			return i
		}
		return len(c.ranking)
	}
	return slices.MinFunc(all, func(a, b provided) int {
		return cmp.Or(cmp.Compare(rank(a.provider), rank(b.provider)), cmp.Compare(a.provider, b.provider))
	}).provider
}

// touched returns, sorted, the pods that the changed objects touch.
func (c *Catalog) touched(changed []Key) []Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pods := map[Key]bool{}
	for _, key := range changed {
		if key.Kind == resolve.KindPod {
			pods[key] = true
		}
		for user := range c.users[key].all() {
			pods[user] = true
		}
		for _, list := range c.index.lists(key) {
			for user := range c.users[list].all() {
				pods[user] = true
			}
		}
	}
	c.index.settled()
	return slices.SortedFunc(maps.Keys(pods), Key.Compare)
}
