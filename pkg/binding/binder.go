package binding

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

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is the catalog's name of this provider.
const Name = "binder"

// bucket is the journal's bucket of choices.
const bucket = "bindings"

// version is the version of a record that this code writes.
const version = 1

// storeWait is how long to wait before a choice that could not be made durable is made again.
const storeWait = 5 * time.Second

// Journal keeps choices durably.
type Journal interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none, before it returns. A nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Config is what a Binder needs; every field is required.
type Config struct {
	Catalog *source.Catalog
	Journal Journal
	// Remote names the provider of a cluster's claims, which the cluster binds.
	Remote string
	// Made reports whether a volume was made for the claim, or may have been.
	Made func(claim source.Key) bool
	// Silent lists the sources that have not told what they have.
	Silent func() []string
	Logger *slog.Logger
}

// Binder gives claims volumes that are there.
type Binder struct {
	c    Config
	wake chan struct{} // holds one: something changed since the last look

	mu         sync.Mutex // guards what follows, and is held while a choice is made durable
	loaded     bool
	choices    map[source.Key]choice
	unreadable map[source.Key]string
	shown      map[source.Key]resolve.Binding // what the catalog was told
}

// New returns a Binder. It does nothing until Load or Run.
func New(c Config) *Binder {
	b := &Binder{
		c: c, wake: make(chan struct{}, 1), choices: map[source.Key]choice{}, unreadable: map[source.Key]string{},
	}
	c.Catalog.Subscribe(func(key source.Key) {
		switch key.Kind {
		case resolve.KindClaim, resolve.KindVolume, resolve.KindClass:
			b.Wake()
		}
	})
	return b
}

// Wake has Run look again at what claims wait for. It looks by itself where claims,
// volumes and classes change; what Made and Silent return is for the caller to tell.
func (b *Binder) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Load tells the catalog of the choices that the journal has. It makes none.
func (b *Binder) Load(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.load(ctx)
}

// load is Load; the caller holds mu.
func (b *Binder) load(ctx context.Context) error {
	if b.loaded {
		return nil
	}
	values, err := b.c.Journal.LoadBucket(ctx, bucket)
	if err != nil {
		return fmt.Errorf("load which volumes claims have: %w", err)
	}
	for name, value := range values.Sound {
		c, err := decode(name, value)
		if err != nil {
			b.bad(name, err.Error())
			continue
		}
		b.choices[claimKey(name)] = c
	}
	for name, why := range values.Unreadable {
		b.bad(name, why)
	}
	b.loaded = true
	b.show(nil)
	b.c.Catalog.Synced(Name)
	return nil
}

// bad notes that the choice of a claim cannot be read.
func (b *Binder) bad(name, why string) {
	b.unreadable[claimKey(name)] = why
	b.c.Logger.Error("record of a claim's volume cannot be read", "claim", name, "err", why)
}

func claimKey(name string) source.Key {
	namespace, claim, _ := strings.Cut(name, "/")
	return source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: claim}
}

func decode(name string, value []byte) (choice, error) {
	var c choice
	if err := json.Unmarshal(value, &c); err != nil {
		return choice{}, fmt.Errorf("decode the volume of claim %s: %w", name, err)
	}
	switch {
	case c.Version != version:
		return choice{}, fmt.Errorf("decode the volume of claim %s: version %d, want %d", name, c.Version, version)
	case c.Claim != name || c.Volume == "" || c.Storage == "":
		return choice{}, fmt.Errorf("decode the volume of claim %s: it is of claim %q and volume %q", name, c.Claim, c.Volume)
	}
	return c, nil
}

// Run gives claims volumes until ctx ends. An error means that the journal could not be read.
func (b *Binder) Run(ctx context.Context) error {
	if err := b.Load(ctx); err != nil {
		return err
	}
	for {
		var again <-chan time.Time
		if len(b.c.Silent()) == 0 {
			if err := b.bind(ctx); err != nil && ctx.Err() == nil {
				b.c.Logger.Error("claims wait: which volumes they have cannot be written", "err", err)
				again = time.After(storeWait)
			}
		}
		select {
		case <-b.wake:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// bind makes the choices that are due, writes them, and tells the catalog.
func (b *Binder) bind(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	choices, notes := next(b.inputs())
	if err := b.write(ctx, choices); err != nil {
		return err
	}
	b.show(notes)
	return nil
}

// show tells the catalog what claims have and wait for, where that changed.
func (b *Binder) show(notes map[source.Key]string) {
	is := map[source.Key]resolve.Binding{}
	for key, c := range b.choices {
		if !c.Released {
			is[key] = resolve.Binding{Volume: c.Volume, Storage: c.Storage}
		}
	}
	for key, note := range notes {
		bound := is[key]
		bound.Note = note
		is[key] = bound
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(is)), maps.Keys(b.shown))
	slices.SortFunc(keys, source.Key.Compare)
	for _, key := range slices.Compact(keys) {
		if is[key] != b.shown[key] {
			b.c.Catalog.SetBinding(key, is[key])
		}
	}
	b.shown = is
}

// write makes choices durable.
func (b *Binder) write(ctx context.Context, choices map[source.Key]choice) error {
	changes := map[string][]byte{}
	var changed []source.Key
	for key, c := range choices {
		if b.choices[key] == c {
			continue
		}
		c.Version = version
		choices[key] = c
		value, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encode the volume of claim %s: %w", c.Claim, err)
		}
		changes[c.Claim], changed = value, append(changed, key)
	}
	for key, c := range b.choices {
		if _, stays := choices[key]; !stays {
			changes[c.Claim], changed = nil, append(changed, key)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := b.c.Journal.CommitBucket(ctx, bucket, changes); err != nil {
		return fmt.Errorf("write which volumes claims have: %w", err)
	}
	b.choices = choices
	for _, key := range slices.SortedFunc(slices.Values(changed), source.Key.Compare) {
		c := choices[key]
		b.c.Logger.Info("claim has a volume that was there", "claim", key.String(), "volume", c.Volume,
			"released", c.Released)
	}
	return nil
}

// ErrNone is returned where a claim has no volume that was chosen for it.
var ErrNone = errors.New("no volume was chosen for the claim")

// Release ends the claim's hold on its volume, which an operator asked for, and returns the
// volume's name. Its data stays; no other claim gets it while a source lists it. The error
// wraps ErrNone where the claim has none.
func (b *Binder) Release(ctx context.Context, claim source.Key) (volume string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx); err != nil { // the operator may be quicker than Run
		return "", fmt.Errorf("release the volume of %s: %w", claim, err)
	}
	c, has := b.choices[claim]
	if !has || c.Released {
		return "", fmt.Errorf("release the volume of %s: %w", claim, ErrNone)
	}
	choices := maps.Clone(b.choices)
	c.Released = true
	choices[claim] = c
	if err := b.write(ctx, choices); err != nil {
		return "", err
	}
	notes := map[source.Key]string{}
	for key, bound := range b.shown {
		notes[key] = bound.Note
	}
	b.show(notes)
	return c.Volume, nil
}

// Kept returns, by volume, the claim ("namespace/name") that has it or had it: the volume goes to no other.
func (b *Binder) Kept() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := map[string]string{}
	for _, c := range b.choices {
		kept[c.Volume] = c.Claim
	}
	return kept
}

// inputs gathers what choices depend on. Volumes are looked at only where a claim waits for
// one or has one, which on most nodes is never.
func (b *Binder) inputs() inputs {
	w := inputs{
		choices: b.choices, unreadable: b.unreadable, named: map[string]bool{}, here: b.c.Catalog.Here,
	}
	for _, claim := range b.c.Catalog.Claims() {
		if name := claim.Spec.VolumeName; name != "" {
			w.named[name] = true
			continue
		}
		key := source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}
		class, makes := className(claim, b.c.Catalog.ClassOf(claim))
		if !makes && claim.Status.Phase != corev1.ClaimBound && b.c.Catalog.Provider(key) != b.c.Remote && !b.c.Made(key) {
			w.claims = append(w.claims, claimOf{claim, class})
		}
	}
	if len(w.claims) == 0 && len(w.choices) == 0 {
		return w
	}
	ofClaimRef := map[source.Key]bool{}
	for _, pv := range b.c.Catalog.Volumes() {
		if b.c.Catalog.Provider(source.Key{Kind: resolve.KindVolume, Name: pv.Name}) == b.c.Remote {
			continue
		}
		w.volumes = append(w.volumes, pv)
		if ref := pv.Spec.ClaimRef; ref != nil {
			ofClaimRef[source.Key{Kind: resolve.KindClaim, Namespace: ref.Namespace, Name: ref.Name}] = true
		}
	}
	w.claims = slices.DeleteFunc(w.claims, func(c claimOf) bool { return ofClaimRef[c.key()] })
	return w
}

// className is the class that a claim asks for, and whether it makes volumes; class is the
// claim's object, nil where there is none.
func className(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (name string, makes bool) {
	if class != nil {
		return class.Name, class.Provisioner != resolve.NoProvisioner
	}
	return attributes(claim.Spec.StorageClassName), false
}
