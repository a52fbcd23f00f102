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
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is this provider's name in the catalog.
const Name = "binder"

// bucket is the journal's bucket for choices.
const bucket = "bindings"

// version is the version of the records that this code writes.
const version = 1

// storeWait is the pause before a choice that could not be stored is made again.
const storeWait = 5 * time.Second

// Journal stores choices durably.
type Journal interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable or none before it returns. A nil value deletes the
	// key.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Config configures a Binder; every field is required.
type Config struct {
	Catalog *source.Catalog
	Journal Journal
	// Remote is the provider of a cluster's claims, which the cluster binds itself.
	Remote string
	// Made reports whether the controller has provisioned, or may have provisioned, a volume for
	// the claim.
	Made func(claim source.Key) bool
	// Volumes lists what is mounted on this node, or may be.
	Volumes func() []manager.VolumeStatus
	// Silent lists the sources that have not delivered all their objects.
	Silent func() []string
	Logger *slog.Logger
}

// Binder binds claims to existing volumes.
type Binder struct {
	c    Config
	wake chan struct{} // capacity 1: something changed since the last look

	mu         sync.Mutex // guards the fields below; held while a choice is stored
	loaded     bool
	choices    map[source.Key]choice
	unreadable map[source.Key]string
	shown      map[source.Key]resolve.Binding      // what the catalog has
	owners     map[string]resolve.Owner            // by the volume's name
	contended  map[string][]string                 // claims that name one volume, and no one has it
	storages   map[*corev1.PersistentVolume]string // resolve.Storage of listed volumes
}

// New returns a Binder that does nothing until Load or Run is called.
func New(c Config) *Binder {
	b := &Binder{
		c: c, wake: make(chan struct{}, 1), choices: map[source.Key]choice{}, unreadable: map[source.Key]string{},
		owners: map[string]resolve.Owner{},
	}
	c.Catalog.Subscribe(func(key source.Key) {
		switch key.Kind {
		case resolve.KindClaim, resolve.KindVolume, resolve.KindClass:
			b.Wake()
		}
	})
	return b
}

// Wake makes Run look at the waiting claims again. Changes of claims, volumes and classes do that
// by themselves; the caller must call Wake when the results of Made and Silent change.
func (b *Binder) Wake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Load delivers the choices in the journal to the catalog. It makes no new ones.
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
		return fmt.Errorf("load the bindings of claims: %w", err)
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
	if err := b.loadOwners(ctx); err != nil {
		return err
	}
	b.loaded = true
	for name, o := range b.owners {
		b.c.Catalog.SetOwner(name, o)
	}
	b.show(nil)
	b.c.Catalog.Synced(Name)
	return nil
}

// bad notes that the choice of a claim cannot be read.
func (b *Binder) bad(name, why string) {
	b.unreadable[claimKey(name)] = why
	b.c.Logger.Error("cannot read the record of a claim's volume", "claim", name, "err", why)
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

// Run binds claims until ctx ends. An error means that the journal could not be read.
func (b *Binder) Run(ctx context.Context) error {
	if err := b.Load(ctx); err != nil {
		return err
	}
	for {
		var again <-chan time.Time
		if len(b.c.Silent()) == 0 {
			if err := b.bind(ctx); err != nil && ctx.Err() == nil {
				b.c.Logger.Error("cannot store the bindings of claims; they wait", "err", err)
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

// bind makes the choices that are due, stores them, and delivers them to the catalog.
func (b *Binder) bind(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.inputs()
	choices, notes := next(w)
	owners, contended := nextOwners(w, choices)
	if err := b.setOwners(ctx, owners); err != nil {
		return err
	}
	if err := b.write(ctx, choices); err != nil {
		return err
	}
	b.contended = contended
	b.show(notes)
	return nil
}

// show updates the bindings in the catalog that changed.
func (b *Binder) show(notes map[source.Key]note) {
	is := map[source.Key]resolve.Binding{}
	for key, c := range b.choices {
		if !c.Released {
			is[key] = resolve.Binding{Volume: c.Volume, Storage: c.Storage}
		}
	}
	for key, n := range notes {
		bound := is[key]
		bound.Note, bound.Cause = n.text, n.cause
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

// write stores choices durably.
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
		return fmt.Errorf("store the bindings of claims: %w", err)
	}
	b.choices = choices
	for _, key := range slices.SortedFunc(slices.Values(changed), source.Key.Compare) {
		c := choices[key]
		b.c.Logger.Info("binding of a claim changed", "claim", key.String(), "volume", c.Volume,
			"released", c.Released)
	}
	return nil
}

// ErrNone means that no volume was chosen for the claim.
var ErrNone = errors.New("no volume was chosen for the claim")

// Release ends the claim's hold on its volume at an operator's request and returns the volume's
// name. The data stays, and no other claim gets the volume while a source lists it. The error wraps
// ErrNone if the claim has no volume.
func (b *Binder) Release(ctx context.Context, claim source.Key) (volume string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx); err != nil { // the operator may be quicker than Run
		return "", fmt.Errorf("release the volume of %s: %w", claim, err)
	}
	owners, choices := maps.Clone(b.owners), maps.Clone(b.choices)
	for name, o := range b.owners {
		if claimKey(o.Claim) == claim && !o.Released {
			o.Released, volume = true, name
			owners[name] = o
		}
	}
	if c, has := b.choices[claim]; has && !c.Released {
		c.Released, volume = true, c.Volume
		choices[claim] = c
	}
	if volume == "" {
		return "", fmt.Errorf("release the volume of %s: %w", claim, ErrNone)
	}
	if err := b.setOwners(ctx, owners); err != nil {
		return "", err
	}
	if err := b.write(ctx, choices); err != nil {
		return "", err
	}
	notes := map[source.Key]note{}
	for key, bound := range b.shown {
		notes[key] = note{bound.Note, bound.Cause}
	}
	b.show(notes)
	return volume, nil
}

// Kept maps volumes to the claim ("namespace/name") that has or had them. No other claim gets such
// a volume.
func (b *Binder) Kept() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := map[string]string{}
	for name, o := range b.owners {
		kept[name] = o.Claim
	}
	for _, c := range b.choices {
		kept[c.Volume] = c.Claim
	}
	return kept
}

// inputs gathers what choices depend on. It only looks at volumes if a claim waits for one or has
// one, which is never the case on most nodes.
func (b *Binder) inputs() inputs {
	w := inputs{
		choices: b.choices, unreadable: b.unreadable, here: b.c.Catalog.CheckAffinity, owners: b.owners,
		named: map[string][]asker{}, listed: map[string]bool{}, uids: map[string]types.UID{}, storage: b.storage,
	}
	mounted := sync.OnceValue(b.mounted) // most nodes have no claim that names a volume
	for _, key := range b.c.Catalog.Unreadable(resolve.KindClaim, resolve.KindVolume, resolve.KindClass) {
		w.hidden = key.String() + ": " + b.c.Catalog.Unread(key)
	}
	for _, claim := range b.c.Catalog.Claims() {
		key := source.Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}
		of := claim.Namespace + "/" + claim.Name
		w.listed[of], w.uids[of] = true, claim.UID
		if name := claim.Spec.VolumeName; name != "" {
			if b.c.Catalog.Provider(key) != b.c.Remote {
				w.named[name] = append(w.named[name], asker{of, claim.UID, slices.Contains(mounted()[name], of)})
			}
			continue
		}
		class, makes := className(claim, b.c.Catalog.ClassOf(claim))
		if !makes && claim.Status.Phase != corev1.ClaimBound && b.c.Catalog.Provider(key) != b.c.Remote && !b.c.Made(key) {
			c := claimOf{PersistentVolumeClaim: claim, class: class}
			c.missing.text, c.missing.cause = b.c.Catalog.MissingClass(claim)
			w.claims = append(w.claims, c)
		}
	}
	if w.hidden != "" { // a claim that cannot be read asks for what it has
		for volume, claims := range mounted() {
			for _, of := range claims {
				if !w.listed[of] && b.c.Catalog.Unread(claimKey(of)) != "" {
					w.named[volume] = append(w.named[volume], asker{claim: of, mounted: true})
				}
			}
		}
	}
	if len(w.claims) == 0 && len(w.choices) == 0 && len(w.named) == 0 && len(w.owners) == 0 {
		return w
	}
	named := map[source.Key]bool{} // claims that a volume's claimRef names
	for _, pv := range b.c.Catalog.Volumes() {
		if b.c.Catalog.Provider(source.Key{Kind: resolve.KindVolume, Name: pv.Name}) == b.c.Remote {
			continue
		}
		w.volumes = append(w.volumes, pv)
		if ref := pv.Spec.ClaimRef; ref != nil {
			key := source.Key{Kind: resolve.KindClaim, Namespace: ref.Namespace, Name: ref.Name}
			if claim, ok := b.c.Catalog.Get(key).(*corev1.PersistentVolumeClaim); ok && resolve.RefNames(pv, claim) {
				named[key] = true
			}
		}
	}
	w.claims = slices.DeleteFunc(w.claims, func(c claimOf) bool { return named[c.key()] })
	b.forget(w.volumes)
	return w
}

// className returns the class that a claim names, and whether the class provisions volumes. class
// is the claim's StorageClass, or nil if it does not exist.
func className(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (name string, makes bool) {
	if class != nil {
		return class.Name, class.Provisioner != resolve.NoProvisioner
	}
	return attributes(claim.Spec.StorageClassName), false
}
