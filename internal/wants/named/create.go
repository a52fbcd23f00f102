package named

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Request describes a volume to create.
type Request struct {
	Name     string
	FrontEnd string
	// Tenant is Nomad's namespace; "" for other front ends.
	Tenant string
	// LimitBytes is the largest size that a volume of Nomad may have; 0 means no limit.
	LimitBytes int64
	// Options are the user's options, unparsed.
	Options map[string]string
	// Standing means that the volume stays mounted until it is removed, across boots.
	Standing bool
	// Patience is how long Create waits for an event without which nothing can begin, such as the
	// registration of the driver; 0 means [Patience].
	Patience time.Duration
}

// Create adds a volume durably and returns when its claim has its storage. If ctx ends first, the
// work goes on, and a repeated Create waits for it. If nothing can begin, because the driver is not up,
// Create fails after [Request.Patience] and leaves nothing behind. A repetition with a larger size expands the
// volume, and one without options changes nothing. For front ends that say each time what they want, it also changes
// the owner, mode and reclaim policy. Other options are an error that wraps ErrConflict. Invalid input is an error that
// wraps ErrInvalid, and Create leaves nothing behind.
func (p *Provider) Create(ctx context.Context, req Request) error {
	if err := p.waitLoaded(ctx); err != nil {
		return fmt.Errorf("create volume %s: %w", req.Name, err)
	}
	if err := p.checkOwn(ctx, req); err != nil {
		return err
	}
	var v Volume
	if r, err := p.find(ctx, req.Name); err == nil && len(req.Options) == 0 {
		v = p.volume(r)
		v.Tenant = cmp.Or(v.Tenant, req.Tenant)
	} else if err := p.awaitSources(ctx); err != nil {
		return fmt.Errorf("create volume %s: %w", req.Name, err)
	} else if v, err = p.newVolume(req); err != nil {
		return err
	}
	r, isNew, err := p.reserve(v)
	if err != nil {
		return err
	}
	defer p.created(r)
	if err := p.begin(ctx, r, v, isNew); err != nil {
		return fmt.Errorf("create volume %s: %w", req.Name, err)
	}
	if v.Options.Existing || v.Options.Driver != "" {
		return nil
	}
	return p.awaitStorage(ctx, r, req.Patience, isNew)
}

// newVolume returns the volume for a request after it has checked the options against the catalog.
func (p *Provider) newVolume(req Request) (Volume, error) {
	was := p.existing(req)
	o, err := parse(req.place(was), req.Options)
	if err != nil {
		return Volume{}, err
	}
	o.Delete = o.Delete || was == nil && anonymous(req)
	v := Volume{
		Name: req.Name, FrontEnd: req.FrontEnd, Tenant: req.Tenant, Options: o, Created: time.Now().UTC(),
		Boot: p.c.BootID, Standing: req.Standing, Owns: true,
	}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("volume %s: %w: %s", req.Name, ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := v.check(); err != nil {
		return Volume{}, invalid("%s (of the claim or pod to create)", err)
	}
	if why := checkLimit(o); why != "" {
		return Volume{}, invalid("%s", why)
	}
	if was == nil { // what an earlier version made goes on with its options
		if why := p.checkNomad(v); why != "" {
			return Volume{}, invalid("%s", why)
		}
	}
	claim := v.claimKey()
	switch owner := p.c.Catalog.Provider(claim); {
	case o.Existing && owner == "":
		return Volume{}, invalid("%s", p.noClaim(v))
	case !o.Existing && owner != "" && owner != Name:
		return Volume{}, fmt.Errorf("volume %s: %w: claim %s/%s exists already (source %s): use it with option claim=%s",
			req.Name, ErrConflict, claim.Namespace, claim.Name, owner, claim.Name)
	case o.Existing || o.Driver != "":
		return v, nil
	}
	wanted := v.claimObjects()[0].(*corev1.PersistentVolumeClaim)
	if missing, _ := p.c.Catalog.MissingClass(wanted); missing != "" {
		return Volume{}, invalid("option class: %s", missing)
	}
	switch class := p.c.Catalog.ClassOf(wanted); {
	case class == nil: // it went since
		return Volume{}, invalid("option class: StorageClass %s not found", o.Class)
	case class.Provisioner == resolve.NoProvisioner:
		return Volume{}, invalid("option class: StorageClass %s makes no volumes (provisioner %s)", class.Name,
			class.Provisioner)
	}
	return v, nil
}

// reserve returns the row for v, and adds it if there is none (isNew). It counts the Create, which
// [Provider.created] ends.
func (p *Provider) reserve(v Volume) (r *row, isNew bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	conflict := func(format string, args ...any) error {
		return fmt.Errorf("volume %s: %w: %s", v.Name, ErrConflict, fmt.Sprintf(format, args...))
	}
	if r := p.rows[v.Name]; r != nil {
		switch {
		case r.unreadable != "":
			return nil, false, fmt.Errorf("volume %s: %w: its row in the journal is not readable: %s", v.Name, ErrUnknown,
				r.unreadable)
		case !(Asker{FrontEnd: v.FrontEnd, Tenant: v.Tenant}).reaches(r.v):
			return nil, false, fmt.Errorf("create %w", foreign(r.v, ErrConflict, false))
		case r.v.Removing:
			return nil, false, conflict("it is being removed")
		case r.v.From != "":
			return nil, false, conflict("it is being restored from %s", r.v.From)
		}
		if why := p.refuses(r.v, v.Options); why != "" {
			return nil, false, conflict("%s", why)
		}
		r.creates++
		return r, false, nil
	}
	for name, other := range p.rows {
		if other.unreadable == "" && !v.Options.Existing && other.v.claimKey() == v.claimKey() {
			return nil, false, conflict("its claim %s/%s already belongs to volume %s", v.Options.Namespace, v.Options.Claim,
				name)
		}
		if other.unreadable == "" && other.v.podKey() == v.podKey() {
			return nil, false, conflict("its pod %s already belongs to volume %s", v.podKey().Name, name)
		}
	}
	r = newRow(v)
	r.lastUse, r.creates = time.Now(), 1
	p.rows[v.Name] = r
	return r, true, nil
}

// begin stores a new row durably and delivers its claim to the catalog; if that fails, it drops the
// row. For an existing row it waits until the first Create has done so, and expands the volume if v
// is larger.
func (p *Provider) begin(ctx context.Context, r *row, v Volume, isNew bool) error {
	release, err := r.lock(ctx)
	if err == nil {
		defer release()
		if !isNew {
			old, next := p.volume(r), p.volume(r)
			next.Options, next.Tenant = p.follow(old, v.Options), cmp.Or(next.Tenant, v.Tenant)
			if err := p.checkPresent(r); err != nil || reflect.DeepEqual(old, next) {
				return err
			}
			if err := p.applyReclaim(ctx, old, next); err != nil {
				return err
			}
			v = next
		} else if key, by := p.own(v, true); by != "" {
			p.forget(v.Name)
			return fmt.Errorf("%w: %s exists already (source %s)", ErrConflict, key, by)
		} else {
			err = p.clearName(ctx, v)
		}
		if err == nil {
			err = p.write(ctx, r, v)
		}
		if err == nil {
			err = p.c.Catalog.Apply(Name, source.Update{Put: v.claimObjects(), Checked: true})
		}
	}
	if err != nil && isNew {
		p.c.Catalog.Disown(v.keys())
		p.forget(v.Name)
	}
	return err
}

// checkPresent returns an error if the row was dropped, or its removal began, in the meantime.
func (p *Provider) checkPresent(r *row) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows[r.v.Name] != r || r.v.Removing {
		return fmt.Errorf("%w: it was removed meanwhile", ErrConflict)
	}
	return nil
}

// withdrawClaim deletes the volume's claim, and the PersistentVolume of a static volume, from the
// catalog.
func (p *Provider) withdrawClaim(v Volume) {
	var u source.Update
	for _, obj := range v.claimObjects() {
		key, _ := resolve.KeyOf(obj) // newVolume checked them
		u.Delete = append(u.Delete, key)
	}
	_ = p.c.Catalog.Apply(Name, u) // an update without objects cannot fail
}

// drop deletes the row durably.
func (p *Provider) drop(ctx context.Context, v Volume) error {
	err := p.c.KV.CommitBucket(context.WithoutCancel(ctx), bucket, map[string][]byte{v.Name: nil})
	if err != nil {
		return fmt.Errorf("volume %s: delete its row: %w", v.Name, err)
	}
	p.forget(v.Name)
	p.c.Catalog.Disown(v.keys())
	return nil
}

func (p *Provider) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rows, name)
}
