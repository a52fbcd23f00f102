package named

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// awaitRepetition is how long a volume stays wanted after its caller gave up: podman does so after
// 5 seconds and Docker after 120, and both then ask for the same mount again.
const awaitRepetition = 10 * time.Minute

// startTime is how long after a successful Mount its container may still be about to start, so that
// the kernel shows no holder. It is Docker's own limit for a request.
const startTime = 2 * time.Minute

// Mount mounts the volume and returns its path. The use is counted under id until Unmount. With id
// "" it is not counted, and lasts while the kernel shows a holder. ctx must end when the caller
// goes away, which then has no use.
func (p *Provider) Mount(ctx context.Context, name, id string) (path string, err error) {
	return p.mountFor(ctx, name, id, 0)
}

// mountFor is Mount for the process with an id, 0 if that is unknown.
func (p *Provider) mountFor(ctx context.Context, name, id string, pid int32) (path string, err error) {
	engine := p.engineOf(pid) // before anything that takes time, in which another process may get its id
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
		r.lastUse, r.look, r.unheldSince = time.Now(), look{}, time.Time{}
		r.awaited = time.Time{}
		if err != nil {
			r.awaited = r.lastUse.Add(awaitRepetition)
		}
		p.mu.Unlock()
		p.signal()
	}()
	v, err := p.listPod(ctx, r)
	if err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if err := p.c.Mounts.Mounted(ctx, v.podUID()); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if err := p.checkPod(v); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if path, err = p.c.Mounts.Give(ctx, v.podKey(), podContainer, p.owner(v)); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	if err := p.recordUse(ctx, r, use{id, engine}, path); err != nil {
		return "", fmt.Errorf("mount volume %s: %w", name, err)
	}
	return path, nil
}

// listPod stores that the volume is wanted, and then delivers its pod to the catalog.
func (p *Provider) listPod(ctx context.Context, r *row) (Volume, error) {
	release, err := r.lock(ctx)
	if err != nil {
		return Volume{}, err
	}
	defer release()
	v := p.volume(r)
	switch {
	case v.Removing:
		return Volume{}, fmt.Errorf("%w: it is being removed", ErrConflict)
	case v.From != "":
		return Volume{}, fmt.Errorf("%w: it is being restored from %s", ErrConflict, v.From)
	case v.Listed:
		return v, p.checkPod(v)
	}
	if err := p.checkPod(v); err != nil {
		return Volume{}, err
	}
	v.Listed, v.Boot = true, p.c.BootID
	if err := p.write(ctx, r, v); err != nil {
		return Volume{}, err
	}
	return v, p.c.Catalog.Apply(Name, source.Update{Put: []runtime.Object{v.pod()}, Checked: true})
}

// use is a use to count: under which id, and who asked for it.
type use struct {
	id     string
	engine Engine
}

// recordUse stores a use durably, unless its caller has gone away.
func (p *Provider) recordUse(ctx context.Context, r *row, u use, path string) error {
	release, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	v := p.volume(r)
	if v.Removing {
		return fmt.Errorf("%w: it was removed meanwhile", ErrConflict)
	}
	next := v
	if next.Path = path; u.id != "" {
		next = next.withUse(u.id, 1).withEngine(u.id, u.engine)
	} else if v.Path == path {
		return nil
	}
	if err := p.write(ctx, r, next); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return nil
	}
	err = fmt.Errorf("the caller has gone away: %w", context.Cause(ctx))
	if u.id != "" {
		err = errors.Join(err, p.write(ctx, r, next.withUse(u.id, -1)))
	}
	return err
}

// Unmount ends one use by id. It does nothing if no use is counted, because a front end also calls
// it after a mount that it gave up (moby#37834).
func (p *Provider) Unmount(ctx context.Context, name, id string) error {
	r, err := p.find(ctx, name)
	if err != nil {
		return err
	}
	release, err := r.lock(ctx)
	if err != nil {
		return fmt.Errorf("unmount volume %s: %w", name, err)
	}
	defer release()
	v := p.volume(r)
	if v.Uses[id] == 0 {
		return nil
	}
	p.touch(r) // before the write, because Run must not judge the lower count by an older use
	if err := p.write(ctx, r, v.withUse(id, -1)); err != nil {
		return fmt.Errorf("unmount volume %s: %w", name, err)
	}
	p.signal()
	return nil
}

// touch restarts the linger and discards an older look at the kernel.
func (p *Provider) touch(r *row) {
	p.mu.Lock()
	r.lastUse, r.look, r.unheldSince = time.Now(), look{}, time.Time{}
	p.mu.Unlock()
}

func (p *Provider) remove(ctx context.Context, r *row, by Asker) (note string, err error) {
	release, err := r.lock(ctx)
	if err != nil {
		return "", fmt.Errorf("remove volume %s: %w", r.v.Name, err)
	}
	defer release()
	v := p.volume(r)
	if v.From != "" && !v.Removing {
		if err := p.finishRestore(ctx, r); err != nil {
			return "", fmt.Errorf("remove volume %s: %w", v.Name, err)
		}
		v = p.volume(r)
	}
	if !v.Removing {
		if err := p.checkUnused(ctx, r, v); err != nil {
			return "", fmt.Errorf("remove volume %s: %w", v.Name, err)
		}
		v.Removing, v.Uses, v.Engines, v.RemovedBy = true, nil, nil, by.String()
		if err := p.write(ctx, r, v); err != nil {
			return "", fmt.Errorf("remove %w", err)
		}
	}
	p.mu.Lock()
	r.doubted = false // the removal is asked for now
	p.mu.Unlock()
	p.withdrawPod(v)
	if err := p.c.Mounts.Gone(ctx, v.podUID()); err != nil {
		return "", fmt.Errorf("remove volume %s: it is still being unmounted: %w", v.Name, err)
	}
	if !v.Options.Existing {
		if note, err = p.deleteClaim(ctx, by, v); err != nil {
			return "", fmt.Errorf("remove volume %s: %w", v.Name, err)
		}
	}
	if note != "" {
		p.c.Logger.Info("named volume removed; its storage stays", "volume", v.Name, "note", note)
	}
	return note, p.drop(ctx, v)
}

// checkUnused returns an error if the volume may be in use.
func (p *Provider) checkUnused(ctx context.Context, r *row, v Volume) error {
	p.mu.Lock()
	pending, fresh := r.pending, time.Since(r.lastUse) < startTime
	p.mu.Unlock()
	if pending > 0 {
		return fmt.Errorf("%w: it is being mounted", ErrConflict)
	}
	if pods := p.users(v); len(pods) > 0 && !v.Options.Existing {
		return fmt.Errorf("%w: its claim is used by %s", ErrConflict, strings.Join(pods, ", "))
	}
	if v.Listed {
		found, err := p.c.Mounts.Holders(ctx, v.podUID())
		if err != nil {
			return fmt.Errorf("%w: cannot determine who uses it: %w", ErrConflict, err)
		}
		if len(found) > 0 {
			return fmt.Errorf("%w: it is in use by %s: end that first, then: %s", ErrConflict, found[0],
				v.full().EndsFor(found))
		}
	}
	if n := v.useCount(); n > 0 && fresh {
		return fmt.Errorf("%w: %s has not ended its use (%d counted), and a container may be about to start; no process has "+
			"it: try again in %s", ErrConflict, v.FrontEnd, n, startTime)
	}
	return nil
}

// users returns the other pods that use the volume's claim.
func (p *Provider) users(v Volume) []string {
	var names []string
	for _, pod := range p.c.Catalog.Pods() {
		key, err := resolve.KeyOf(pod)
		if err != nil || key == v.podKey() || pod.Namespace != v.Options.Namespace {
			continue
		}
		for _, vol := range pod.Spec.Volumes {
			if c := vol.PersistentVolumeClaim; c != nil && c.ClaimName == v.Options.Claim {
				name := key.String()
				if words := p.c.Claims.Ends(key); words != "" {
					name += ", which ends by: " + words
				}
				names = append(names, name)
			}
		}
	}
	return names
}

// Stale is a volume with counted uses but without a holder.
type Stale struct {
	Name string
	Uses map[string]int
	// EngineRuns means that the engine that began them runs, and ends them itself unless it has lost their end.
	EngineRuns bool
	// Ended means that they were ended.
	Ended bool
}

// Ending says which stale uses to end.
type Ending int

const (
	// EndNone ends none.
	EndNone Ending = iota
	// EndSafe ends those whose engine has ended.
	EndSafe
	// EndLost also ends those whose engine runs: an operator says that it has lost their end.
	EndLost
)

// Stale returns the volumes that have counted uses but no holder, and whose last container has had
// time to start: their front end lost the end of the use, or has been at the start of the container for long. Stale
// ends those that end says.
func (p *Provider) Stale(ctx context.Context, end Ending) ([]Stale, error) {
	views, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []Stale
	for _, view := range views {
		if len(view.Uses) == 0 {
			continue
		}
		s, err := p.stale(ctx, view.Name, end)
		if err != nil {
			return all, err
		}
		if s.Uses != nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// stale returns the stale uses of one volume, without Uses if there are none, and ends those that end says.
func (p *Provider) stale(ctx context.Context, name string, end Ending) (Stale, error) {
	r, err := p.find(ctx, name)
	if err != nil {
		return Stale{}, nil // it was removed meanwhile
	}
	release, err := r.lock(ctx)
	if err != nil {
		return Stale{}, err
	}
	defer release()
	p.mu.Lock()
	v, busy := r.v, r.pending > 0 || time.Since(r.lastUse) < startTime
	p.mu.Unlock()
	if v.useCount() == 0 || busy || !v.Listed {
		return Stale{}, nil
	}
	found, err := p.c.Mounts.Holders(ctx, v.podUID())
	if err != nil {
		return Stale{}, fmt.Errorf("find the holders of volume %s: %w", name, err)
	}
	p.see(r, found)
	if len(found) > 0 {
		return Stale{}, nil
	}
	s := Stale{Name: name, Uses: v.Uses, EngineRuns: p.engineRuns(v)}
	if end == EndLost || end == EndSafe && !s.EngineRuns {
		ended := v
		ended.Uses, ended.Engines, s.Ended = nil, nil, true
		p.touch(r)
		if err := p.write(ctx, r, ended); err != nil {
			return Stale{}, err
		}
		p.signal()
	}
	return s, nil
}
