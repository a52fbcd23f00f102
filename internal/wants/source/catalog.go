package source

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Key names one object; its kinds are the constants of package resolve.
type Key = resolve.Key

// Kube names the provider of a cluster's objects.
const Kube = "kube"

// Sink receives what each pod wants; the manager implements it. A pod's wants arrive in the order
// in which the catalog resolved them.
type Sink interface {
	SetPod(state.PodWant)
	RemovePod(state.PodUID)
	// SourceSynced reports that the provider has delivered all its objects.
	SourceSynced(name string)
}

// Config configures a Catalog.
type Config struct {
	// Resolve says how pods are resolved. New draws a random RevisionKey if it is nil.
	Resolve resolve.Config
	Sink    Sink
	// Remote names the provider that delivers an object only after it was asked for it, as a
	// cluster's API server does; "" if there is none. Until it answers, an object that one of its
	// pods names counts as unread and not as absent.
	Remote string
	// Made names the provider of the volumes that csi-volmgr makes; "" if there is none. It tells their names
	// by [Catalog.Hold], and until then no PersistentVolume of another provider but Remote is in effect.
	Made string
	// Demand receives the sorted keys that resolving a pod of Remote looked up, each time they
	// change, and nil when the pod is gone. It is called during an update, so it must neither block
	// nor start another update.
	Demand func(pod Key, objects []Key)
	// Remains reports whether volumes of the pod with the UID may be on the node, for example because a source
	// has not listed its pods yet. It must not call the catalog. nil means that none ever are.
	Remains func(uid state.PodUID) bool
	// Precedence lists providers. If two have an object with the same key, the catalog uses the
	// earlier provider's. Unlisted providers come after the listed ones, sorted by name. nil means
	// file, api.
	Precedence []string
	// Logger may be nil.
	Logger *slog.Logger
}

// Update is a set of changes that a provider makes at once.
type Update struct {
	Put []runtime.Object
	// Checked means that the provider ran [resolve.Check] on every object in Put and found nothing.
	Checked bool
	Delete  []Key
	// Unreadable says why the provider cannot read an object that it has. What else is known of the object
	// stays, and a pod that names it keeps what it has. A key of a kind with namespaces that has none stands
	// for an object of unknown name. Put and Delete end it.
	Unreadable map[Key]string
	// Remote is what else [Config.Remote] knows; every other provider leaves it empty.
	Remote Remote
}

// Problem describes, for people, an error in what a provider delivers.
type Problem struct {
	Provider string `json:"provider"`
	// Where names a file or an object.
	Where string `json:"where"`
	// Text says what is wrong. It never contains a secret's value.
	Text string `json:"text"`
	// Object means that Where names an object, also if the provider has files.
	Object bool `json:"object,omitempty"`
}

// Catalog holds the objects of all providers. See the package comment.
type Catalog struct {
	config  resolve.Config
	sink    Sink
	logger  *slog.Logger
	ranking []string
	remains func(state.PodUID) bool

	// update serializes updates, including their calls to the sink.
	update sync.Mutex
	// mu guards the fields below. It is never held while the sink is called.
	mu      sync.RWMutex
	objects map[string]map[Key]byProvider // by kind, so that listing one kind does not walk over all objects
	index   index
	notes   map[Key]resolve.Binding // each has a Note and its Cause
	waits   map[Key]string          // why no source lists a claim that a template asks for
	// bindings are the volumes chosen for claims.
	bindings  map[Key]resolve.Binding
	owners    map[string]resolve.Owner // by the volume's name
	owned     map[Key]Ownership
	pods      map[Key]*pod
	users     map[Key]*smallSet[Key]
	uids      map[state.PodUID]*smallSet[Key]
	published map[state.PodUID]state.PodWant
	hear      []func(Key)
	remote    remote
	holds     holds
	// recorded are the volumes that pods have by the records of an earlier run.
	recorded map[state.PodUID]recordedVolumes
	// left are the pods that had a UID, have none of the sources any longer or not yet, and may have volumes.
	left map[state.PodUID]Key
	// unreadable holds the objects that their providers cannot read.
	unreadable map[Key]unreadable
}

// New returns an empty Catalog.
func New(c Config) *Catalog {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Precedence == nil {
		c.Precedence = []string{"file", "api"}
	}
	if c.Remains == nil {
		c.Remains = func(state.PodUID) bool { return false }
	}
	if c.Resolve.RevisionKey == nil {
		c.Resolve.RevisionKey = []byte(rand.Text())
	}
	catalog := &Catalog{
		config:  c.Resolve,
		sink:    c.Sink,
		logger:  c.Logger,
		ranking: slices.Clone(c.Precedence),
		remains: c.Remains,
		objects: map[string]map[Key]byProvider{},
		index:   newIndex(),
		notes:   map[Key]resolve.Binding{}, bindings: map[Key]resolve.Binding{}, owners: map[string]resolve.Owner{},
		waits:     map[Key]string{},
		owned:     map[Key]Ownership{},
		pods:      map[Key]*pod{},
		users:     map[Key]*smallSet[Key]{},
		uids:      map[state.PodUID]*smallSet[Key]{},
		published: map[state.PodUID]state.PodWant{},
		recorded:  map[state.PodUID]recordedVolumes{},
		left:      map[state.PodUID]Key{},
		remote:    newRemote(c.Remote, c.Demand), unreadable: map[Key]unreadable{},
		holds: holds{provider: c.Made, remote: c.Remote, known: make(chan struct{})},
	}
	catalog.config.Had = catalog.volumesOf
	return catalog
}

// Put adds or replaces one object of the provider. See Apply.
func (c *Catalog) Put(provider string, obj runtime.Object) error {
	return c.Apply(provider, Update{Put: []runtime.Object{obj}})
}

// Delete removes one object of the provider. For a pod, it means that the provider knows that the
// pod's containers have ended.
func (c *Catalog) Delete(provider string, key Key) {
	// An update without objects cannot fail.
	_ = c.Apply(provider, Update{Delete: []Key{key}})
}

// Apply makes all changes of u, then resolves each affected pod once. It skips objects that fail
// [resolve.Check] or [resolve.CheckChange], keeps the previous object under their keys, and returns
// the reasons as a joined error; it applies all others.
func (c *Catalog) Apply(provider string, u Update) error {
	c.update.Lock()
	changed, err := c.store(provider, u)
	touched := c.affectedPods(changed)
	c.resolve(touched)
	c.update.Unlock()
	c.announce(changed)
	return err
}

// Synced notes that the provider has delivered all its objects.
func (c *Catalog) Synced(provider string) {
	c.update.Lock()
	defer c.update.Unlock()
	c.sink.SourceSynced(provider)
}

// SetClaimNote sets the text that users see for an unbound claim, how far the creation of its
// volume has got, and its cause. "" removes the text.
func (c *Catalog) SetClaimNote(claim Key, text string, cause state.Cause) {
	c.update.Lock()
	defer c.update.Unlock()
	c.mu.Lock()
	changed := setOrDelete(c.notes, claim, resolve.Binding{Note: text, Cause: cause})
	c.mu.Unlock()
	if changed {
		c.resolve(c.affectedPods([]Key{claim}))
	}
}

// setOrDelete sets the key's value, or deletes the key if v is zero, and reports whether that changed
// anything.
func setOrDelete[V comparable](m map[Key]V, key Key, v V) (changed bool) {
	var zero V
	changed = m[key] != v
	if v == zero {
		delete(m, key)
	} else {
		m[key] = v
	}
	return changed
}

// SetBinding sets the volume that was chosen for a claim without a volumeName, or the reason why
// none was. The zero Binding removes both.
func (c *Catalog) SetBinding(claim Key, b resolve.Binding) {
	c.update.Lock()
	c.mu.Lock()
	changed := setOrDelete(c.bindings, claim, b)
	c.mu.Unlock()
	if changed {
		c.resolve(c.affectedPods([]Key{claim}))
	}
	c.update.Unlock()
	if changed {
		c.announce([]Key{claim})
	}
}

// SetOwner sets the claim that has or had a volume. The zero Owner removes it.
func (c *Catalog) SetOwner(volume string, o resolve.Owner) {
	c.update.Lock()
	c.mu.Lock()
	changed := c.owners[volume] != o
	if c.owners[volume] = o; o == (resolve.Owner{}) {
		delete(c.owners, volume)
	}
	c.mu.Unlock()
	key := Key{Kind: resolve.KindVolume, Name: volume}
	if changed {
		c.resolve(c.affectedPods([]Key{key}))
	}
	c.update.Unlock()
	if changed {
		c.announce([]Key{key})
	}
}

// Subscribe registers f to be called for every object that is added, changed or removed, at most
// once per update. The pods have been resolved and no lock is held at that time, so f may call the
// catalog, and sees its current state.
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

// store changes the objects and returns the sorted keys whose effective object changed.
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
	for _, key := range slices.Concat(c.remote.learn(provider, u), c.noteUnreadable(provider, u, all)) {
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

// set stores the provider's object, or removes it if obj is nil. It reports whether the key's
// effective object changed.
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
		c.logger.Warn("several sources have the object; one of them is used", "object", key.String(),
			"holds", c.effective(key))
	}
	is := c.holder(key)
	if _, held := c.holds.names[key.Name]; held && key.Kind == resolve.KindVolume && c.holds.contends(provider) {
		c.index.replace(key, was, is)
		return true // the provider of made volumes has to look at it
	}
	if was == is || was != nil && is != nil && equality.Semantic.DeepEqual(was, is) {
		o, owned := c.owned[key]
		return owned && o.Provider != provider // what other pods see may have changed
	}
	c.index.replace(key, was, is)
	return true
}

// under returns the providers' objects under the key.
func (c *Catalog) under(key Key) byProvider { return c.objects[key.Kind][key] }

// affectedPods returns the sorted keys of the pods that the changed objects affect.
func (c *Catalog) affectedPods(changed []Key) []Key {
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
	c.index.clearMoved()
	return slices.SortedFunc(maps.Keys(pods), Key.Compare)
}
