package named

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// View describes a volume to people and front ends.
type View struct {
	Name       string    `json:"name"`
	FrontEnd   string    `json:"frontEnd"`
	Claim      string    `json:"claim"` // namespace/name
	Pod        string    `json:"pod"`   // the pod that represents the volume's users, namespace/name
	Created    time.Time `json:"created"`
	Mountpoint string    `json:"mountpoint,omitempty"`
	Options    Options   `json:"options,omitzero"`
	// Uses counts the uses by the front end's id. A standing volume has none.
	Uses     map[string]int `json:"uses,omitempty"`
	Standing bool           `json:"standing,omitempty"`
	// Holders lists who held the volume when the kernel was last asked.
	Holders   []Holder  `json:"holders,omitempty"`
	HoldersAt time.Time `json:"holdersAt,omitzero"`
	// Waits says what keeps the volume from being mounted.
	Waits    []string `json:"waits,omitempty"`
	Removing bool     `json:"removing,omitempty"`
	// Removed is when the volume Was was removed that left this data; both are zero for a volume.
	Removed time.Time `json:"removed,omitzero"`
	Was     string    `json:"was,omitempty"`
	// Creating means that a Create waits for the volume's storage.
	Creating bool `json:"-"`
	// Problem is what is wrong with its row.
	Problem string `json:"problem,omitempty"`
}

// Get returns one volume. The error wraps ErrNotFound only if the rows have been read.
func (p *Provider) Get(ctx context.Context, name string) (View, error) {
	r, err := p.find(ctx, name)
	if err != nil && !errors.Is(err, ErrUnknown) {
		return View{}, err
	}
	if err := p.waitLoaded(ctx); err != nil {
		return View{}, fmt.Errorf("volume %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r == nil {
		r = p.rows[name] // an unreadable one
	}
	return p.view(r), nil
}

// List returns all volumes, sorted by name.
func (p *Provider) List(ctx context.Context) ([]View, error) {
	return p.list(ctx, func(Volume) bool { return true })
}

// list returns the volumes that show selects, sorted by name.
func (p *Provider) list(ctx context.Context, show func(Volume) bool) ([]View, error) {
	if err := p.waitLoaded(ctx); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	views := make([]View, 0, len(p.rows))
	for _, name := range slices.Sorted(maps.Keys(p.rows)) {
		if r := p.rows[name]; show(r.v) {
			views = append(views, p.view(r))
		}
	}
	return views, nil
}

// view converts a row; the caller holds mu.
func (p *Provider) view(r *row) View {
	if r.unreadable != "" {
		return View{
			Name: r.v.Name, FrontEnd: r.v.FrontEnd, Problem: "its row in the journal is not readable: " + r.unreadable,
		}
	}
	v := r.v
	view := View{
		Name: v.Name, FrontEnd: v.FrontEnd, Claim: v.Options.Namespace + "/" + v.Options.Claim,
		Pod: v.Options.Namespace + "/" + v.podKey().Name, Created: v.Created, Mountpoint: v.Path, Options: v.Options,
		Uses: maps.Clone(v.Uses), Standing: v.Standing, Holders: slices.Clone(r.look.found), HoldersAt: r.look.at,
		Removing: v.Removing,
	}
	has, why := p.storage(v)
	view.Creating = r.creates > 0 && !has
	switch {
	case r.doubted:
		view.Waits = []string{reasonDoubted(v.Name)}
	case v.From != "":
		view.Waits = []string{"its data is being moved from claim " + v.Options.Namespace + "/" + v.From}
	case v.Listed:
		view.Waits = p.c.Mounts.Waits(v.podUID())
	case why != "" && !v.Removing:
		view.Waits = []string{why}
	}
	return view
}

// Holders returns who else holds the volume, as the kernel shows it now.
func (p *Provider) Holders(ctx context.Context, name string) ([]Holder, error) {
	r, err := p.find(ctx, name)
	if err != nil {
		return nil, err
	}
	v := p.volume(r)
	if !v.Listed {
		return nil, nil
	}
	return p.c.Mounts.Holders(ctx, v.podUID())
}
