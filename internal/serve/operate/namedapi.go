package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// NamedAPI serves named volumes to the node API (server.Named).
type NamedAPI struct{ *named.Provider }

// NamedVolumes implements server.Named.
func (n NamedAPI) NamedVolumes(ctx context.Context) ([]server.NamedVolume, error) {
	views, err := n.List(ctx)
	if err != nil {
		return nil, namedError(err)
	}
	all := make([]server.NamedVolume, 0, len(views))
	for _, v := range views {
		all = append(all, namedVolume(v))
	}
	return all, nil
}

// NamedVolume implements server.Named.
func (n NamedAPI) NamedVolume(ctx context.Context, name string) (server.NamedVolume, error) {
	view, err := n.Get(ctx, name)
	if err != nil {
		return server.NamedVolume{}, namedError(err)
	}
	v := namedVolume(view)
	if view.Problem != "" {
		return v, nil
	}
	found, err := n.Holders(ctx, name)
	if err != nil {
		v.HoldersUnknown = err.Error()
	} else {
		v.Unheld = n.Unheld(ctx, name, found)
	}
	v.Holders = holderTexts(found)
	v.Ends = named.Identity{FrontEnd: view.FrontEnd, Volume: view.Name}.EndsFor(found)
	return v, nil
}

// CreateNamed implements server.Named.
func (n NamedAPI) CreateNamed(ctx context.Context, r server.NamedRequest) error {
	if err := checkFrontEnd(r.FrontEnd); err != nil {
		return err
	}
	if r.FrontEnd != named.Nomad && (r.Namespace != "" || r.LimitBytes != 0) {
		return fmt.Errorf("%w: namespace and limitBytes are for front end %s", server.ErrInvalid, named.Nomad)
	}
	return namedError(n.Create(ctx, named.Request{
		Name: r.Name, FrontEnd: r.FrontEnd, Tenant: r.Namespace, LimitBytes: r.LimitBytes, Options: r.Options,
		Standing: r.Standing, Patience: time.Duration(r.PatienceSeconds) * time.Second,
	}))
}

// ChangeNamed implements server.Named.
func (n NamedAPI) ChangeNamed(ctx context.Context, name string, c server.NamedChange) error {
	return namedError(n.Change(ctx, name, c.Options))
}

// checkFrontEnd returns an error for a front end that does not use the API.
func checkFrontEnd(name string) error {
	if name != named.Mount && name != named.Nomad {
		return fmt.Errorf("%w: frontEnd: found %q, want %s or %s", server.ErrInvalid, name, named.Mount, named.Nomad)
	}
	return nil
}

// reach returns the volumes that a front end, for a namespace of Nomad if that is known, or the operator ("") reaches.
func (n NamedAPI) reach(frontEnd, namespace string) (named.Front, error) {
	if frontEnd == "" {
		return n.For(named.Asker{}), nil
	}
	return n.For(named.Asker{FrontEnd: frontEnd, Tenant: namespace}), checkFrontEnd(frontEnd)
}

// MountNamed implements server.Named.
func (n NamedAPI) MountNamed(ctx context.Context, frontEnd, name string) (path string, err error) {
	front, err := n.reach(frontEnd, "")
	if err == nil {
		path, err = front.Mount(ctx, name, "", 0)
	}
	return path, namedError(err)
}

// RemoveNamed implements server.Named.
func (n NamedAPI) RemoveNamed(ctx context.Context, r server.NamedRemoval) (note string, err error) {
	front, err := n.reach(r.FrontEnd, r.Namespace)
	if err == nil {
		note, err = front.Remove(ctx, r.By.UID, r.By.PID, r.Name)
	}
	return note, namedError(err)
}

// namedError wraps an error of named volumes in the server error that decides the API's answer.
func namedError(err error) error {
	for ours, class := range map[error]error{
		named.ErrNotFound: server.ErrNotFound, named.ErrInvalid: server.ErrInvalid, named.ErrConflict: server.ErrConflict,
	} {
		if errors.Is(err, ours) {
			return fmt.Errorf("%w: %w", class, err)
		}
	}
	return err
}

func namedVolume(v named.View) server.NamedVolume {
	return server.NamedVolume{
		Name: v.Name, FrontEnd: v.FrontEnd, Claim: v.Claim, Pod: v.Pod, Created: v.Created, Mountpoint: v.Mountpoint,
		Uses: v.Uses, Standing: v.Standing, Holders: holderTexts(v.Holders), Waits: v.Waits, Removing: v.Removing,
		Ends:    named.Identity{FrontEnd: v.FrontEnd, Volume: v.Name}.EndsFor(v.Holders),
		Problem: v.Problem,
	}
}

func holderTexts(found []named.Holder) []string {
	var all []string
	for _, h := range found {
		all = append(all, h.String())
	}
	return all
}
