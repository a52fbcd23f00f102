package named

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// ErrTaken means that a name is another claim's.
var ErrTaken = errors.New("the name is another claim's")

// Shelf moves the data of claims that no source lists, and finds it.
type Shelf interface {
	// Kept returns the data of a claim that no source lists; found is false if there is none.
	Kept(ctx context.Context, claim source.Key) (k Kept, found bool, err error)
	// Parked returns all data that was moved with a label and that no source lists.
	Parked(ctx context.Context) ([]Kept, error)
	// Move gives the data of a claim to a claim of another name, at once or not at all, and returns when no
	// claim of the old name gets it. The error wraps ErrNotFound if the claim has no data, ErrTaken if the new
	// name has, and ErrConflict if the data cannot be moved.
	Move(ctx context.Context, from, to source.Key, label *Label) error
}

// Label says whose parked data was. The journal contains it as JSON.
type Label struct {
	// Volume and FrontEnd identify the volume. FrontEnd is "" for data that an earlier version left.
	Volume   string    `json:"volume"`
	FrontEnd string    `json:"frontEnd,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	// Removed is when the volume was removed, or when the data that an earlier version left was found.
	Removed time.Time `json:"removed"`
	// Options are the volume's; nil for data that an earlier version left.
	Options *Options `json:"options,omitempty"`
}

// Kept is the data of a claim that no source lists.
type Kept struct {
	Claim source.Key
	// Volume is the name of its PersistentVolume.
	Volume string
	// Deletes means that the data goes with the claim, so that no removed volume left it.
	Deletes bool
	// Made are the options that a volume with this data has, as far as the data tells.
	Made Options
	// Label is nil if the data was not moved.
	Label *Label
}

// Name returns the name by which an operator asks for the data.
func (k Kept) Name() string {
	if k.Claim.Namespace == corev1.NamespaceDefault {
		return k.Claim.Name
	}
	return k.Claim.Namespace + "/" + k.Claim.Name
}

// deletes returns the command that deletes the data for good.
func (k Kept) deletes() string {
	return fmt.Sprintf("csi-volmgr delete pvc %s -n %s --data", k.Claim.Name, k.Claim.Namespace)
}

// note says where the data is, and what can be done with it.
func (k Kept) note() string {
	return fmt.Sprintf("its volume %s is kept with its data as %s: bring it back with: csi-volmgr volume restore %s, "+
		"or delete it with: %s", k.Volume, k.Name(), k.Name(), k.deletes())
}

// parks reports whether a new volume of the name begins empty, and the data of a removed one is parked. To remove
// the volume is Docker's and podman's way to begin anew. A line of fstab has its data by its claim's name.
func (v Volume) parks() bool {
	return v.FrontEnd == Docker && !v.Options.Existing
}

// maxClaim is the length of a claim's name (Kubernetes).
const maxClaim = 253

// parkedKey returns the n-th claim name to try for data of claim that is parked at a time.
func parkedKey(claim source.Key, at time.Time, n int) source.Key {
	suffix := ".removed-" + at.UTC().Format("20060102-150405")
	if n > 1 {
		suffix += "-" + strconv.Itoa(n)
	}
	name := claim.Name
	if room := maxClaim - len(suffix); len(name) > room {
		name = strings.TrimRight(name[:room], ".-")
	}
	claim.Name = name + suffix
	return claim
}

// parkTries limits how many names are tried for data that is parked within one second.
const parkTries = 100

// park moves the data of a claim that no source lists to a name of its own.
func (p *Provider) park(ctx context.Context, k Kept, label Label) (Kept, error) {
	from := k.Claim
	for n := 1; ; n++ {
		k.Claim, k.Label = parkedKey(from, label.Removed, n), &label
		var err error
		if p.c.Catalog.Provider(k.Claim) != "" {
			err = ErrTaken
		} else {
			err = p.c.Claims.Move(ctx, from, k.Claim, k.Label)
		}
		if !errors.Is(err, ErrTaken) || n == parkTries {
			return k, err
		}
	}
}

// deleteClaim deletes the claim of a volume that is being removed. Data that stays is parked if the volume parks. A
// kill at any moment leaves it with the row or parked with the row's label, which the next attempt finds.
func (p *Provider) deleteClaim(ctx context.Context, by Asker, v Volume) (note string, err error) {
	parks := v.parks() && v.Options.Driver == ""
	if parks {
		all, err := p.c.Claims.Parked(ctx)
		if err != nil {
			return "", err
		}
		for _, k := range all {
			if l := k.Label; l.FrontEnd == v.FrontEnd && l.Volume == v.Name && l.Created.Equal(v.Created) {
				return k.note(), nil
			}
		}
	}
	note, err = p.c.Claims.DeleteNamed(ctx, by, v.claimKey(), v.removal(by), func() { p.withdrawClaim(v) })
	if err != nil || !parks {
		return note, err
	}
	k, found, err := p.c.Claims.Kept(ctx, v.claimKey())
	if err != nil || !found {
		return note, err
	}
	label := Label{
		Volume: v.Name, FrontEnd: v.FrontEnd, Created: v.Created, Removed: time.Now().UTC(), Options: &v.Options,
	}
	if k, err = p.park(ctx, k, label); err != nil {
		return "", err
	}
	return k.note(), nil
}

// clearName parks what an earlier version left under the name of a new volume's claim, so that the volume begins empty.
// It refuses a name whose data is not that of a removed volume.
func (p *Provider) clearName(ctx context.Context, v Volume) error {
	if !v.parks() {
		return nil
	}
	k, found, err := p.c.Claims.Kept(ctx, v.claimKey())
	if err != nil || !found {
		return err
	}
	switch owner := p.c.Catalog.Provider(k.Claim); {
	case owner != "": // it was not read yet
		return fmt.Errorf("%w: claim %s/%s exists already (source %s): use it with option claim=%s", ErrConflict,
			k.Claim.Namespace, k.Claim.Name, owner, k.Claim.Name)
	case k.Label != nil:
		return fmt.Errorf("%w: it is the kept data of the volume %s, removed %s: bring it back with: csi-volmgr volume "+
			"restore %s", ErrConflict, k.Label.Volume, k.Label.Removed.Format(time.RFC3339), k.Name())
	case k.Deletes:
		return fmt.Errorf("%w: claim %s/%s, which no source lists any longer, has kept its volume %s with its data: use it "+
			"with: csi-volmgr volume restore %s, or delete it with: %s", ErrConflict, k.Claim.Namespace, k.Claim.Name, k.Volume,
			k.Name(), k.deletes())
	}
	k, err = p.park(ctx, k, Label{Volume: v.Name, Removed: time.Now().UTC()})
	if err == nil {
		p.c.Logger.Info("new named volume begins empty; an earlier version kept data under its name", "volume", v.Name,
			"note", k.note())
	}
	return err
}

// Restore makes a volume again from the data of a removed one: of the name as, or of its former name if as is "". The
// error wraps ErrNotFound if there is no such data, and ErrConflict if the name is taken.
func (p *Provider) Restore(ctx context.Context, name, as string) (View, error) {
	if err := p.waitLoaded(ctx); err != nil {
		return View{}, fmt.Errorf("restore volume %s: %w", name, err)
	}
	v, err := p.restored(ctx, name, as)
	if err != nil {
		return View{}, fmt.Errorf("restore volume %s: %w", name, err)
	}
	r, err := p.reserveName(v)
	if err != nil {
		return View{}, fmt.Errorf("restore volume %s: %w", name, err)
	}
	defer p.created(r)
	release, err := r.lock(ctx)
	if err == nil {
		defer release()
		if key, by := p.own(v, true); by != "" {
			p.forget(v.Name)
			return View{}, fmt.Errorf("restore volume %s: %w: %s exists already (source %s)", name, ErrConflict, key, by)
		}
		err = p.write(ctx, r, v)
	}
	if err != nil {
		p.c.Catalog.Disown(v.keys())
		p.forget(v.Name)
		return View{}, fmt.Errorf("restore volume %s: %w", name, err)
	}
	if err := p.finishRestore(ctx, r); err != nil {
		return View{}, fmt.Errorf("restore volume %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view(r), nil
}

// restored returns the volume to make from the data with the name.
func (p *Provider) restored(ctx context.Context, name, as string) (Volume, error) {
	var from source.Key
	from.Kind = resolve.KindClaim
	from.Namespace, from.Name = claimOf(name)
	k, found, err := p.c.Claims.Kept(ctx, from)
	switch {
	case err != nil:
		return Volume{}, err
	case !found:
		return Volume{}, p.noKept(ctx)
	case p.c.Catalog.Provider(from) != "":
		return Volume{}, fmt.Errorf("%w: claim %s/%s has it (source %s)", ErrConflict, from.Namespace, from.Name,
			p.c.Catalog.Provider(from))
	}
	o, was := k.Made, from.Name
	if l := k.Label; l != nil {
		was = l.Volume
		if l.Options != nil {
			o = *l.Options
		}
	}
	v := Volume{
		Name: cmp.Or(as, was), FrontEnd: Docker, Options: o, Created: time.Now().UTC(), Boot: p.c.BootID, From: from.Name,
		Owns: true,
	}
	namespace, claim := claimOf(v.Name)
	if strings.Contains(v.Name, "/") && namespace != from.Namespace {
		return Volume{}, fmt.Errorf("%w: name %s: the data is in namespace %s", ErrInvalid, v.Name, from.Namespace)
	}
	v.Options.Namespace, v.Options.Claim = from.Namespace, claim
	if err := v.check(); err != nil {
		return Volume{}, fmt.Errorf("%w: name %s: %w (of the claim or pod to create)", ErrInvalid, v.Name, err)
	}
	if owner := p.c.Catalog.Provider(v.claimKey()); owner != "" && owner != Name {
		return Volume{}, fmt.Errorf("%w: claim %s/%s exists already (source %s): give the volume another name: csi-volmgr "+
			"volume restore %s NEWNAME", ErrConflict, from.Namespace, claim, owner, name)
	}
	return v, nil
}

// noKept returns the error that there is no data of the name, and which there is.
func (p *Provider) noKept(ctx context.Context) error {
	all, err := p.c.Claims.Parked(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, k := range all {
		names = append(names, k.Name())
	}
	return fmt.Errorf("%w is kept under this name; there are: %s", ErrNotFound, source.JoinNames(names))
}

// reserveName adds a row for v, whose name and claim no other row may have. It counts as a Create.
func (p *Provider) reserveName(v Volume) (*row, error) {
	r, isNew, err := p.reserve(v)
	if err == nil && !isNew {
		p.created(r)
	}
	p.mu.Lock()
	_, taken := p.rows[v.Name]
	p.mu.Unlock()
	if !isNew && taken {
		err = fmt.Errorf("%w: volume %s exists: remove it first, or give the other a name of its own: csi-volmgr volume "+
			"restore %s NEWNAME", ErrConflict, v.Name, v.From)
	}
	return r, err
}

// finishRestore moves the data of a volume that is being restored to its claim, and then lists the claim. Until
// then the row says whose the data is to be. If the data cannot be moved, it stays where it is and the row goes.
// The caller has the row's turn.
func (p *Provider) finishRestore(ctx context.Context, r *row) error {
	v := p.volume(r)
	from := v.claimKey()
	from.Name = v.From
	if from != v.claimKey() {
		err := p.c.Claims.Move(ctx, from, v.claimKey(), nil)
		if errors.Is(err, ErrNotFound) { // an earlier attempt may have moved it
			if _, found, keptErr := p.c.Claims.Kept(ctx, v.claimKey()); found || keptErr != nil {
				err = keptErr
			}
		}
		if errors.Is(err, ErrTaken) {
			err = fmt.Errorf("%w: %w", ErrConflict, err)
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
			return errors.Join(err, p.drop(ctx, v))
		}
		if err != nil {
			return err
		}
	}
	v.From = ""
	if err := p.write(ctx, r, v); err != nil {
		return err
	}
	return p.c.Catalog.Apply(Name, source.Update{Put: v.claimObjects(), Checked: true})
}

// restorePause is the pause before the restoration that a restart interrupted is tried again: no event says that a
// full disk was repaired.
const restorePause = 5 * time.Second

// resumeRestore completes a restoration that a restart interrupted.
func (p *Provider) resumeRestore(ctx context.Context, r *row) {
	for {
		release, err := r.lock(ctx)
		if err != nil {
			return
		}
		v := p.volume(r)
		if p.checkPresent(r) == nil && v.From != "" {
			err = p.finishRestore(ctx, r)
		}
		release()
		if err == nil || ctx.Err() != nil {
			return
		}
		p.c.Logger.Warn("cannot complete the restoration of a named volume", "volume", v.Name, "from", v.From, "err", err)
		select {
		case <-time.After(restorePause):
		case <-ctx.Done():
			return
		}
	}
}

// ListParked returns the data of removed volumes that is kept.
func (p *Provider) ListParked(ctx context.Context) ([]View, error) {
	all, err := p.c.Claims.Parked(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the kept data of removed volumes: %w", err)
	}
	var views []View
	for _, k := range all {
		view := View{
			Name: k.Name(), FrontEnd: k.Label.FrontEnd, Claim: k.Claim.Namespace + "/" + k.Claim.Name, Created: k.Label.Created,
			Removed: k.Label.Removed, Was: k.Label.Volume, Waits: []string{k.note()},
		}
		views = append(views, view)
	}
	return views, nil
}

// MadeOptions returns the options of a volume that csi-volmgr made, as far as its claim's record tells.
func MadeOptions(class string, bytes int64) Options {
	return Options{Class: class, SizeBytes: bytes, AccessMode: corev1.ReadWriteOnce, Subdir: defaultSubdir}
}
