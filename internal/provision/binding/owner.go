package binding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// ownersBucket is the journal's bucket for the claim that has or had each volume.
const ownersBucket = "owners"

// owner is the durable record of a volume's owner. Daemons of earlier versions do not read it: they know the
// choices only.
type owner struct {
	Version  int       `json:"version"`
	Volume   string    `json:"volume"`
	Claim    string    `json:"claim"` // namespace/name
	UID      types.UID `json:"uid,omitempty"`
	Storage  string    `json:"storage"`
	Released bool      `json:"released,omitempty"`
}

// asker is a listed claim that has a reason to have a volume.
type asker struct {
	claim   string // namespace/name
	uid     types.UID
	mounted bool // a pod has the volume by it now
}

// asks are the reasons to have a volume without a claimRef.
type asks struct {
	storage string // the volume's
	// chosen is the claim for which the volume was chosen; released means that an operator deleted it.
	chosen   asker
	released bool
	// named are the claims that name the volume in spec.volumeName.
	named []asker
}

// ownerOf decides whose a volume is. The claim that has it, or had it, keeps it from every other. Without a
// record, as of an earlier version, the claim has it for which it was chosen, else the one that has it mounted,
// else the only one that names it, else a deleted one whose data it has. contended means that several claims
// name it, and it is not known which came first: then it is no claim's.
func ownerOf(had resolve.Owner, a asks) (o resolve.Owner, contended bool) {
	of := func(k asker, released bool) resolve.Owner {
		return resolve.Owner{Claim: k.claim, UID: k.uid, Storage: a.storage, Released: released}
	}
	asking := a.named
	if a.chosen.claim != "" && !a.released {
		asking = append(slices.Clone(asking), a.chosen)
	}
	switch has := slices.ContainsFunc(asking, func(k asker) bool { return same(had, k) }); {
	case had.Unreadable != "":
		return had, false
	case had.Claim != "" && had.Storage == a.storage:
		had.Released = had.Released && !has
		return had, false
	case a.chosen.claim != "" && !a.released:
		return of(a.chosen, false), false
	}
	mounted := slices.DeleteFunc(slices.Clone(a.named), func(k asker) bool { return !k.mounted })
	switch {
	case len(mounted) == 1:
		return of(mounted[0], false), false
	case len(a.named) == 1:
		return of(a.named[0], false), false
	case len(a.named) == 0 && a.chosen.claim != "":
		return of(a.chosen, true), false
	}
	return resolve.Owner{}, len(a.named) > 1
}

func same(o resolve.Owner, k asker) bool {
	return o.Claim == k.claim && (o.UID == "" || k.uid == "" || o.UID == k.uid)
}

// nextOwners returns the owner of each volume, and the volumes that several claims name.
func nextOwners(w inputs, choices map[source.Key]choice,
) (owners map[string]resolve.Owner, contended map[string][]string) {
	owners, contended = map[string]resolve.Owner{}, map[string][]string{}
	chosen := map[string]choice{}
	for _, c := range choices {
		chosen[c.Volume] = c
	}
	for name, o := range w.owners {
		if w.listed[o.Claim] || o.Unreadable != "" || w.hidden != "" {
			owners[name] = o // its volume may come back, or cannot be read
		}
	}
	for _, pv := range w.volumes {
		named, c := w.named[pv.Name], chosen[pv.Name]
		had, has := w.owners[pv.Name]
		if pv.Spec.ClaimRef != nil || len(named) == 0 && c.Volume == "" && !has {
			continue
		}
		a := asks{storage: w.storage(pv), named: named}
		if c.Storage == a.storage {
			a.chosen, a.released = asker{claim: c.Claim, uid: w.uids[c.Claim]}, c.Released
		}
		o, fight := ownerOf(had, a)
		if owners[pv.Name] = o; o == (resolve.Owner{}) {
			delete(owners, pv.Name)
		}
		for _, k := range named {
			if fight {
				contended[pv.Name] = append(contended[pv.Name], k.claim)
			}
		}
	}
	return owners, contended
}

// loadOwners reads the owners; the caller holds mu.
func (b *Binder) loadOwners(ctx context.Context) error {
	values, err := b.c.Journal.LoadBucket(ctx, ownersBucket)
	if err != nil {
		return fmt.Errorf("load the owners of volumes: %w", err)
	}
	unreadable := maps.Clone(values.Unreadable)
	for name, value := range values.Sound {
		var o owner
		err := json.Unmarshal(value, &o)
		if err == nil && (o.Version != version || o.Volume != name || o.Claim == "") {
			err = fmt.Errorf("version %d, volume %q, claim %q", o.Version, o.Volume, o.Claim)
		}
		if err != nil {
			if unreadable == nil {
				unreadable = map[string]string{}
			}
			unreadable[name] = err.Error()
			continue
		}
		b.owners[name] = resolve.Owner{Claim: o.Claim, UID: o.UID, Storage: o.Storage, Released: o.Released}
	}
	for name, why := range unreadable {
		b.owners[name] = resolve.Owner{Unreadable: why}
		b.c.Logger.Error("cannot read the record of a volume's owner", "volume", name, "err", why)
	}
	return nil
}

// setOwners stores the owners that changed durably, and shows them; the caller holds mu.
func (b *Binder) setOwners(ctx context.Context, owners map[string]resolve.Owner) error {
	changes := map[string][]byte{}
	for name, o := range owners {
		if o == b.owners[name] || o.Unreadable != "" {
			continue
		}
		value, err := json.Marshal(owner{
			Version: version, Volume: name, Claim: o.Claim, UID: o.UID, Storage: o.Storage, Released: o.Released,
		})
		if err != nil {
			return fmt.Errorf("encode the owner of volume %s: %w", name, err)
		}
		changes[name] = value
	}
	for name := range b.owners {
		if _, stays := owners[name]; !stays {
			changes[name] = nil
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := b.c.Journal.CommitBucket(ctx, ownersBucket, changes); err != nil {
		return fmt.Errorf("store the owners of volumes: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if o := owners[name]; o.Claim != b.owners[name].Claim {
			b.c.Logger.Info("owner of a volume changed", "volume", name, "claim", o.Claim)
		}
		b.c.Catalog.SetOwner(name, owners[name])
	}
	b.owners = owners
	return nil
}

// Errors of [Binder.ReleaseVolume].
var (
	// ErrOwned means that a claim that is listed, or mounted, has the volume.
	ErrOwned = errors.New("the volume is in use")
	// ErrNoOwner means that no claim has or had the volume.
	ErrNoOwner = errors.New("no claim has or had the volume")
)

// ReleaseVolume gives a volume free, with its data, for the next claim, at an operator's request. It returns
// the claim that had it. The error wraps ErrOwned or ErrNoOwner.
func (b *Binder) ReleaseVolume(ctx context.Context, volume string) (claim string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx); err != nil {
		return "", err
	}
	o, has := b.owners[volume]
	choices := maps.Clone(b.choices)
	for key, c := range b.choices {
		if c.Volume == volume {
			o.Claim, has = c.Claim, true
			delete(choices, key)
		}
	}
	if !has {
		return "", fmt.Errorf("release volume %s: %w", volume, ErrNoOwner)
	}
	if by := b.mounted()[volume]; len(by) > 0 {
		return "", fmt.Errorf("release volume %s: %w: it is mounted for claim %s", volume, ErrOwned, by[0])
	}
	if o.Claim != "" {
		if _, listed := b.c.Catalog.Get(claimKey(o.Claim)).(*corev1.PersistentVolumeClaim); listed && !o.Released {
			return "", fmt.Errorf("release volume %s: %w: claim %s has it; delete that first", volume, ErrOwned, o.Claim)
		}
	}
	owners := maps.Clone(b.owners)
	delete(owners, volume)
	if err := b.setOwners(ctx, owners); err != nil {
		return "", err
	}
	if err := b.write(ctx, choices); err != nil {
		return "", err
	}
	b.Wake()
	return o.Claim, nil
}

// mounted maps volumes to the claims by which pods have them, or may have.
func (b *Binder) mounted() map[string][]string {
	by := map[string][]string{}
	for _, v := range b.c.Volumes() {
		if s := v.Volume.Spec; s != nil && s.Claim != "" && !v.Volume.Unmounted() {
			by[s.Name] = append(by[s.Name], s.Claim)
		}
	}
	return by
}

// storage returns resolve.Storage of a listed volume.
func (b *Binder) storage(pv *corev1.PersistentVolume) string {
	if b.storages == nil {
		b.storages = map[*corev1.PersistentVolume]string{}
	}
	if b.storages[pv] == "" {
		b.storages[pv] = resolve.Storage(pv)
	}
	return b.storages[pv]
}

// forget keeps what storage has found for listed volumes only.
func (b *Binder) forget(listed []*corev1.PersistentVolume) {
	stay := map[*corev1.PersistentVolume]string{}
	for _, pv := range listed {
		if s := b.storages[pv]; s != "" {
			stay[pv] = s
		}
	}
	b.storages = stay
}

// Problems names the volumes that several claims name, where no claim has them because it is not known which
// came first.
func (b *Binder) Problems() (out []source.Problem) {
	b.mu.Lock()
	contended := b.contended // replaced, never changed
	b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(contended)) {
		out = append(out, source.Problem{
			Provider: Name, Where: source.Key{Kind: resolve.KindVolume, Name: name}.String(),
			Text: fmt.Sprintf("claims %s all name it in spec.volumeName, and no record says which came first: name one of "+
				"them in its spec.claimRef, or delete the others", strings.Join(contended[name], ", ")),
		})
	}
	return out
}
