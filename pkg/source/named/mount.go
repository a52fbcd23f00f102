package named

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// awaitRepetition is how long a volume stays wanted whose user gave up waiting for it: podman
// does so after 5 seconds, Docker after 120, and what they ask for then is the same mount.
const awaitRepetition = 10 * time.Minute

// startTime is how long after a mount was answered its container may still be about to
// start, so that the kernel shows no holder: Docker's own limit of a request.
const startTime = 2 * time.Minute

// Mount mounts the volume and returns where. The use is counted under id until Unmount, and
// not at all where id is "": then it lasts while the kernel shows a holder. A caller that has
// gone has no use: ctx is to end with it.
func (p *Provider) Mount(ctx context.Context, name, id string) (path string, err error) {
	r, err := p.find(ctx, name)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	r.pending++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		r.pending--
		r.lastUse, r.look = time.Now(), look{}
		r.awaited = time.Time{}
		if err != nil {
			r.awaited = r.lastUse.Add(awaitRepetition)
		}
		p.mu.Unlock()
		p.signal()
	}()
	v, err := p.list(ctx, r)
	if err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if err := p.c.Mounts.Mounted(ctx, v.podUID()); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if path, err = p.c.Mounts.Give(ctx, v.podKey(), podContainer, v.Options.Owner); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if err := p.used(ctx, r, id, path); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	return path, nil
}

// list tells the catalog of the volume's pod, after it is durable that it is wanted.
func (p *Provider) list(ctx context.Context, r *row) (Volume, error) {
	release, err := r.own(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer release()
	v := p.value(r)
	switch {
	case v.Removing:
		return Volume{}, fmt.Errorf("%w: it is being removed", ErrConflict)
	case v.Listed:
		return v, nil
	}
	v.Listed, v.Boot = true, p.c.BootID
	if err := p.write(ctx, r, v); err != nil {
		return Volume{}, err
	}
	return v, p.c.Catalog.Apply(Name, source.Update{Put: []runtime.Object{v.pod()}, Checked: true})
}

// used counts a use, durably, unless its caller has gone.
func (p *Provider) used(ctx context.Context, r *row, id, path string) error {
	release, err := r.own(ctx)
	if err != nil {
		return err
	}
	defer release()
	v := p.value(r)
	next := v
	if next.Path = path; id != "" {
		next = next.used(id, 1)
	} else if v.Path == path {
		return nil
	}
	if err := p.write(ctx, r, next); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return nil
	}
	if id != "" {
		err = p.write(ctx, r, next.used(id, -1))
	}
	return fmt.Errorf("%w; its caller has gone: %w", context.Cause(ctx), err)
}

// Unmount ends one use by id. One that is not counted has ended: a mount that its caller gave
// up is followed by this as well (moby#37834).
func (p *Provider) Unmount(ctx context.Context, name, id string) error {
	r, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	release, err := r.own(ctx)
	if err != nil {
		return fmt.Errorf("unmount volume %s: %w", name, err)
	}
	defer release()
	v := p.value(r)
	if v.Uses[id] == 0 {
		return nil
	}
	p.touch(r) // first: Run must not judge the lower count by an older use
	if err := p.write(ctx, r, v.used(id, -1)); err != nil {
		return fmt.Errorf("unmount volume %s: %w", name, err)
	}
	p.signal()
	return nil
}

// touch begins the linger anew: what the kernel showed before is older than this.
func (p *Provider) touch(r *row) {
	p.mu.Lock()
	r.lastUse, r.look = time.Now(), look{}
	p.mu.Unlock()
}

// Remove removes a volume, and its storage where its reclaim policy is Delete; note says where
// storage is that stays. It is refused, with an error that wraps ErrConflict, while the kernel
// shows a holder, a container may be about to start, or another pod uses the claim. A removal
// that ctx cuts off goes on at its repetition, and at the next start.
func (p *Provider) Remove(ctx context.Context, name string) (note string, err error) {
	r, err := p.find(ctx, name)
	if err != nil {
		return "", err
	}
	return p.remove(ctx, r)
}

func (p *Provider) remove(ctx context.Context, r *row) (note string, err error) {
	release, err := r.own(ctx)
	if err != nil {
		return "", fmt.Errorf("remove volume %s: %w", r.v.Name, err)
	}
	defer release()
	v := p.value(r)
	if !v.Removing {
		if err := p.unused(ctx, r, v); err != nil {
			return "", fmt.Errorf("remove volume %s: %w", v.Name, err)
		}
		v.Removing, v.Uses = true, nil
		if err := p.write(ctx, r, v); err != nil {
			return "", fmt.Errorf("remove %w", err)
		}
	}
	p.withdrawPod(v)
	if err := p.c.Mounts.Gone(ctx, v.podUID()); err != nil {
		return "", fmt.Errorf("remove volume %s: it is still being unmounted: %w", v.Name, err)
	}
	if !v.Options.Existing {
		withdraw := func() { p.withdrawClaim(v) }
		reason := v.FrontEnd + " volume " + v.Name + " was removed"
		if note, err = p.c.Claims.DeleteNamed(ctx, v.claimKey(), reason, withdraw); err != nil {
			return "", fmt.Errorf("remove volume %s: %w", v.Name, err)
		}
	}
	if note != "" {
		p.c.Logger.Info("named volume removed; its storage stays", "volume", v.Name, "note", note)
	}
	return note, p.drop(ctx, v)
}

// unused refuses the removal of a volume that may be in use.
func (p *Provider) unused(ctx context.Context, r *row, v Volume) error {
	p.mu.Lock()
	pending, fresh := r.pending, time.Since(r.lastUse) < startTime
	p.mu.Unlock()
	if pending > 0 {
		return fmt.Errorf("%w: it is being mounted", ErrConflict)
	}
	if v.count() > 0 && fresh {
		return fmt.Errorf("%w: %d uses are counted, and a container may be about to start: try again in %s", ErrConflict,
			v.count(), startTime)
	}
	if pods := p.users(v); len(pods) > 0 && !v.Options.Existing {
		return fmt.Errorf("%w: its claim is used by %s", ErrConflict, strings.Join(pods, ", "))
	}
	if !v.Listed {
		return nil
	}
	found, err := p.c.Mounts.Holders(ctx, v.podUID())
	if err != nil {
		return fmt.Errorf("%w: it is not known who uses it: %w", ErrConflict, err)
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: it is in use by %s", ErrConflict, found[0])
	}
	return nil
}

// users returns the other pods that name the volume's claim.
func (p *Provider) users(v Volume) []string {
	var names []string
	for _, pod := range p.c.Catalog.Pods() {
		key, err := resolve.KeyOf(pod)
		if err != nil || key == v.podKey() || pod.Namespace != v.Options.Namespace {
			continue
		}
		for _, vol := range pod.Spec.Volumes {
			if c := vol.PersistentVolumeClaim; c != nil && c.ClaimName == v.Options.Claim {
				names = append(names, "pod "+pod.Namespace+"/"+pod.Name)
			}
		}
	}
	return names
}

// Stale is a volume whose counted uses no holder proves.
type Stale struct {
	Name string         `json:"name"`
	Uses map[string]int `json:"uses"`
}

// Stale looks for volumes with a counted use that no holder proves, and whose last container
// has had time to start: their front end lost the end of the use. Where end is set it ends them.
func (p *Provider) Stale(ctx context.Context, end bool) ([]Stale, error) {
	if err := p.known(ctx); err != nil {
		return nil, err
	}
	views, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []Stale
	for _, view := range views {
		if len(view.Uses) == 0 {
			continue
		}
		uses, err := p.stale(ctx, view.Name, end)
		if err != nil {
			return all, err
		}
		if uses != nil {
			all = append(all, Stale{view.Name, uses})
		}
	}
	return all, nil
}

// stale returns the uses of one volume that are stale, nil for none.
func (p *Provider) stale(ctx context.Context, name string, end bool) (map[string]int, error) {
	r, err := p.find(ctx, name)
	if err != nil {
		return nil, nil // it went meanwhile
	}
	release, err := r.own(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	p.mu.Lock()
	v, busy := r.v, r.pending > 0 || time.Since(r.lastUse) < startTime
	p.mu.Unlock()
	if v.count() == 0 || busy || !v.Listed {
		return nil, nil
	}
	found, err := p.c.Mounts.Holders(ctx, v.podUID())
	if err != nil {
		return nil, fmt.Errorf("find who has volume %s: %w", name, err)
	}
	if len(found) > 0 {
		return nil, nil
	}
	if end {
		ended := v
		ended.Uses = nil
		p.touch(r)
		if err := p.write(ctx, r, ended); err != nil {
			return nil, err
		}
		p.signal()
	}
	return v.Uses, nil
}
