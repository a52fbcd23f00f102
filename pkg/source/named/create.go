package named

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// Request asks for a volume.
type Request struct {
	Name     string
	FrontEnd string
	// Options are the front end's, as its user wrote them.
	Options map[string]string
	// Standing: the volume is mounted until it is removed, across boots.
	Standing bool
}

// Create makes a volume known, durably, and returns when its claim has its storage. What it
// began goes on where ctx ends first, and a repetition waits for the same. A repetition with a
// larger size lets the volume grow, and one without options asks for nothing else; other
// options are an error that wraps ErrConflict. What is not as it must be is an error that
// wraps ErrInvalid, and leaves nothing behind.
func (p *Provider) Create(ctx context.Context, req Request) error {
	if err := p.known(ctx); err != nil {
		return fmt.Errorf("create volume %s: %w", req.Name, err)
	}
	var v Volume
	if r, err := p.find(ctx, req.Name); err == nil && len(req.Options) == 0 {
		v = p.value(r)
	} else if v, err = p.asked(req); err != nil {
		return err
	}
	r, isNew, err := p.claimRow(v)
	if err != nil {
		return err
	}
	if err := p.begin(ctx, r, v, isNew); err != nil {
		return fmt.Errorf("create volume %s: %w", req.Name, err)
	}
	if v.Options.Existing || v.Options.Driver != "" {
		return nil
	}
	err = p.c.Claims.Bound(ctx, v.claimKey())
	if err == nil || ctx.Err() != nil || !isNew {
		return err
	}
	p.undo(ctx, r)
	return fmt.Errorf("create volume %s: %w", v.Name, err)
}

// asked returns the row that a request asks for, if the objects that are there let it be.
func (p *Provider) asked(req Request) (Volume, error) {
	o, err := parse(req.Name, req.Options)
	if err != nil {
		return Volume{}, err
	}
	v := Volume{
		Name: req.Name, FrontEnd: req.FrontEnd, Options: o, Created: time.Now().UTC(), Boot: p.c.BootID,
		Standing: req.Standing,
	}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("volume %s: %w: %s", req.Name, ErrInvalid, fmt.Sprintf(format, args...))
	}
	for _, obj := range append(v.claimObjects(), runtime.Object(v.pod())) {
		for _, f := range resolve.Check(obj) {
			return Volume{}, invalid("%s, of the claim or pod that it is to be", f)
		}
	}
	claim := v.claimKey()
	switch owner := p.c.Catalog.Provider(claim); {
	case o.Existing && owner == "":
		return Volume{}, invalid("option claim: claim %s/%s not found; there are: %s", claim.Namespace, claim.Name,
			listed(p.claimNames()))
	case !o.Existing && owner != "" && owner != Name:
		return Volume{}, fmt.Errorf("volume %s: %w: claim %s/%s exists already (source %s): use it with option claim=%s",
			req.Name, ErrConflict, claim.Namespace, claim.Name, owner, claim.Name)
	case o.Existing || o.Driver != "":
		return v, nil
	}
	class := p.c.Catalog.ClassOf(v.claimObjects()[0].(*corev1.PersistentVolumeClaim))
	switch {
	case class == nil && o.Class == "":
		return Volume{}, invalid("option class: there is no default StorageClass; name one of: %s", listed(p.classNames()))
	case class == nil:
		return Volume{}, invalid("option class: StorageClass %s not found; there are: %s", o.Class, listed(p.classNames()))
	case class.Provisioner == resolve.NoProvisioner:
		return Volume{}, invalid("option class: StorageClass %s makes no volumes (provisioner %s)", class.Name,
			class.Provisioner)
	}
	return v, nil
}

// claimRow returns the row of v's name, which isNew where it was not there.
func (p *Provider) claimRow(v Volume) (r *row, isNew bool, err error) {
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
		case r.v.Removing:
			return nil, false, conflict("it is being removed")
		case v.Options.SizeBytes < r.v.Options.SizeBytes:
			return nil, false, conflict("option size: it has %s already, and no volume gets smaller",
				resource.NewQuantity(r.v.Options.SizeBytes, resource.BinarySI))
		case !reflect.DeepEqual(r.v.Options.sized(v.Options.SizeBytes), v.Options):
			return nil, false, conflict("it exists already with other options: remove it first, or leave the options out")
		}
		return r, false, nil
	}
	for name, other := range p.rows {
		if other.unreadable == "" && !v.Options.Existing && other.v.claimKey() == v.claimKey() {
			return nil, false, conflict("its claim %s/%s is that of volume %s", v.Options.Namespace, v.Options.Claim, name)
		}
		if other.unreadable == "" && other.v.podKey() == v.podKey() {
			return nil, false, conflict("its pod %s is that of volume %s", v.podKey().Name, name)
		}
	}
	r = newRow(v)
	r.lastUse = time.Now()
	p.rows[v.Name] = r
	return r, true, nil
}

// begin makes a new row durable and tells the catalog of its claim. Where that fails the row
// is gone again. For a row that was there it waits until its first Create has done so.
func (p *Provider) begin(ctx context.Context, r *row, v Volume, isNew bool) error {
	release, err := r.own(ctx)
	if err == nil {
		defer release()
		if !isNew {
			old := p.value(r)
			if err := p.stillThere(r); err != nil || v.Options.SizeBytes == old.Options.SizeBytes {
				return err
			}
			old.Options = old.Options.sized(v.Options.SizeBytes)
			v = old
		}
		if err = p.write(ctx, r, v); err == nil {
			err = p.c.Catalog.Apply(Name, source.Update{Put: v.claimObjects(), Checked: true})
		}
	}
	if err != nil && isNew {
		p.forget(v.Name)
	}
	return err
}

// stillThere fails where the row was given up or removed meanwhile.
func (p *Provider) stillThere(r *row) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows[r.v.Name] != r || r.v.Removing {
		return fmt.Errorf("%w: it was removed meanwhile", ErrConflict)
	}
	return nil
}

// undo removes a volume whose storage the driver refuses to make. A claim that has storage
// keeps it, and so its row.
func (p *Provider) undo(ctx context.Context, r *row) {
	release, err := r.own(context.WithoutCancel(ctx))
	if err != nil {
		return
	}
	defer release()
	v := p.value(r)
	p.withdrawClaim(v)
	if err := p.drop(ctx, v); err != nil {
		p.c.Logger.Warn("row of a volume that was refused stays", "volume", v.Name, "err", err)
	}
}

// withdrawClaim takes back the volume's claim, and the PersistentVolume of a static one.
func (p *Provider) withdrawClaim(v Volume) {
	var u source.Update
	for _, obj := range v.claimObjects() {
		key, _ := resolve.KeyOf(obj) // they were checked
		u.Delete = append(u.Delete, key)
	}
	_ = p.c.Catalog.Apply(Name, u) // without objects nothing could be refused
}

// drop deletes the row, durably.
func (p *Provider) drop(ctx context.Context, v Volume) error {
	err := p.c.KV.CommitBucket(context.WithoutCancel(ctx), bucket, map[string][]byte{v.Name: nil})
	if err != nil {
		return fmt.Errorf("volume %s: delete its row: %w", v.Name, err)
	}
	p.forget(v.Name)
	return nil
}

func (p *Provider) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rows, name)
}

func (p *Provider) claimNames() []string {
	var names []string
	for _, c := range p.c.Catalog.Claims() {
		names = append(names, c.Namespace+"/"+c.Name)
	}
	return names
}

func (p *Provider) classNames() []string {
	var names []string
	for _, c := range p.c.Catalog.Classes() {
		names = append(names, c.Name)
	}
	return names
}

// maxListed bounds how many names an error lists.
const maxListed = 10

func listed(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxListed:
		return strings.Join(names[:maxListed], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// View is a volume for people and front ends.
type View struct {
	Name       string    `json:"name"`
	FrontEnd   string    `json:"frontEnd"`
	Claim      string    `json:"claim"` // namespace/name
	Pod        string    `json:"pod"`   // the pod that stands for its users, namespace/name
	Created    time.Time `json:"created"`
	Mountpoint string    `json:"mountpoint,omitempty"`
	Options    Options   `json:"options,omitzero"`
	// Uses are the counted uses, by the front end's id; Standing has none.
	Uses     map[string]int `json:"uses,omitempty"`
	Standing bool           `json:"standing,omitempty"`
	// Holders are who had it when the kernel was asked last, and why that is not known.
	Holders   []Holder  `json:"holders,omitempty"`
	HoldersAt time.Time `json:"holdersAt,omitzero"`
	// Waits say what keeps it from being mounted.
	Waits    []string `json:"waits,omitempty"`
	Removing bool     `json:"removing,omitempty"`
	// Problem says what is wrong with its row.
	Problem string `json:"problem,omitempty"`
}

// Get returns one volume. The error wraps ErrNotFound only where the rows are read.
func (p *Provider) Get(ctx context.Context, name string) (View, error) {
	r, err := p.find(ctx, name)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return View{}, err
	}
	if err := p.known(ctx); err != nil {
		return View{}, fmt.Errorf("volume %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r == nil {
		r = p.rows[name] // one that is not readable
	}
	return p.view(r), nil
}

// List returns every volume, by name.
func (p *Provider) List(ctx context.Context) ([]View, error) {
	if err := p.known(ctx); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	views := make([]View, 0, len(p.rows))
	for _, name := range slices.Sorted(maps.Keys(p.rows)) {
		views = append(views, p.view(p.rows[name]))
	}
	return views, nil
}

// view is for a caller that has mu.
func (p *Provider) view(r *row) View {
	if r.unreadable != "" {
		return View{Name: r.v.Name, Problem: "its row in the journal is not readable: " + r.unreadable}
	}
	v := r.v
	view := View{
		Name: v.Name, FrontEnd: v.FrontEnd, Claim: v.Options.Namespace + "/" + v.Options.Claim,
		Pod: v.Options.Namespace + "/" + v.podKey().Name, Created: v.Created, Mountpoint: v.Path, Options: v.Options,
		Uses: maps.Clone(v.Uses), Standing: v.Standing, Holders: slices.Clone(r.look.found), HoldersAt: r.look.at,
		Removing: v.Removing,
	}
	if v.Listed {
		view.Waits = p.c.Mounts.Waits(v.podUID())
	}
	return view
}

// Holders returns who has the volume beside csi-volmgr, as the kernel shows it now.
func (p *Provider) Holders(ctx context.Context, name string) ([]Holder, error) {
	r, err := p.find(ctx, name)
	if err != nil {
		return nil, err
	}
	v := p.value(r)
	if !v.Listed {
		return nil, nil
	}
	return p.c.Mounts.Holders(ctx, v.podUID())
}
