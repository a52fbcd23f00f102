package named

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// keys returns the keys of the objects that stand for the volume: its pod, and the claim and the PersistentVolume that
// were made for it.
func (v Volume) keys() []source.Key {
	keys := []source.Key{v.podKey()}
	if v.Options.Existing {
		return keys
	}
	keys = append(keys, v.claimKey())
	if v.Options.Driver != "" {
		keys = append(keys, source.Key{Kind: resolve.KindVolume, Name: v.volumeName()})
	}
	return keys
}

// own makes the volume the owner of its keys. If free is set and another source has an object under one of them, own
// changes nothing and returns that key and that source.
func (p *Provider) own(v Volume, free bool) (taken source.Key, by string) {
	return p.c.Catalog.Own(source.Ownership{Provider: Name, Whose: v.full().Whose()}, v.keys(), free)
}

// ownAll makes the volumes that owned their keys before the start own them again.
func (p *Provider) ownAll() {
	p.mu.Lock()
	rows := slices.Collect(maps.Values(p.rows))
	p.mu.Unlock()
	for _, r := range rows {
		if v := p.volume(r); v.Owns {
			p.own(v, false)
		}
	}
}

// settling is what a Provider knows about the other sources.
type settling struct {
	// unsettled means that rows of an earlier version may not own their keys yet.
	unsettled bool
	// woken is closed by the next Wake.
	woken chan struct{}
}

// Wake makes Run and waiting Creates ask [Config.Spoken] again. The caller must call it when the result changes.
func (p *Provider) Wake() {
	p.mu.Lock()
	close(p.woken)
	p.woken = make(chan struct{})
	p.mu.Unlock()
	p.signal()
}

// awaitSources waits until every other source has said which objects it has: at a boot, a manifest may have the claim
// of the volume to create. After [source.Grace] it goes on without a source that cannot read its input.
func (p *Provider) awaitSources(ctx context.Context) error {
	grace := time.NewTimer(source.Grace)
	defer grace.Stop()
	for {
		p.mu.Lock()
		woken := p.woken
		p.mu.Unlock()
		if p.c.Spoken == nil || p.c.Spoken() {
			return nil
		}
		select {
		case <-woken:
		case <-grace.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%w: the other sources have not spoken yet: %w", ErrUnknown, context.Cause(ctx))
		}
	}
}

// changed notes that an object has changed that may have kept a volume of an earlier version from owning its keys.
func (p *Provider) changed(key source.Key) {
	switch key.Kind {
	case resolve.KindPod, resolve.KindClaim, resolve.KindVolume:
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rows {
		if r.contested != "" {
			p.unsettled = true
			p.signal()
			return
		}
	}
}

// settle gives the volumes of an earlier version their keys, once every other source has said which objects it has.
// Where another source has an object under such a key, no record says who came first: both go on as they did.
func (p *Provider) settle(ctx context.Context, start func(func())) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unsettled || p.c.Spoken != nil && !p.c.Spoken() {
		return
	}
	p.unsettled = false
	for _, r := range p.rows {
		if !r.v.Owns && r.unreadable == "" {
			start(func() { p.settleRow(ctx, r) })
		}
	}
}

func (p *Provider) settleRow(ctx context.Context, r *row) {
	release, err := r.lock(ctx)
	if err != nil {
		return
	}
	defer release()
	if p.checkPresent(r) != nil {
		return
	}
	v, contested := p.volume(r), ""
	if key, by := p.own(v, true); by != "" {
		contested = contest(v, key, by)
	}
	p.mu.Lock()
	r.contested = contested
	p.mu.Unlock()
	if contested != "" {
		p.c.Logger.Warn("named volume shares the name of another source's object", "volume", v.Name, "why", contested)
		return
	}
	v.Owns = true
	if err := p.write(ctx, r, v); err != nil { // it is repeated after the next start
		p.c.Logger.Warn("cannot store that a named volume owns its claim and pod", "volume", v.Name, "err", err)
	}
}

// contest says that another source has an object under a key of a volume of an earlier version, and what follows.
func contest(v Volume, key source.Key, by string) string {
	text := fmt.Sprintf("source %s has %s, too, and no record says which came first: both go on as before", by, key)
	if key.Kind == resolve.KindPod {
		text = fmt.Sprintf("source %s has %s, too: the volume is not mounted while it is there", by, key)
	}
	return text + "; give that object another name, or delete it, and the name is that of " + v.full().Whose()
}

// checkPod returns an error if the pod under the volume's key is another source's.
func (p *Provider) checkPod(v Volume) error {
	key := v.podKey()
	by := p.c.Catalog.Provider(key)
	if by == "" || by == Name {
		return nil
	}
	ends := p.c.Claims.Ends(key)
	if ends == "" {
		ends = "csi-volmgr delete pod " + key.Name + " -n " + key.Namespace
	}
	return fmt.Errorf("%w: %s is not the volume's, but of source %s: %s", ErrConflict, key, by, ends)
}

// Owner returns the volume that owns a key. A volume of an earlier version does not own one under which the asking
// source has an object already. Before Load it reads the rows from the journal.
func (p *Provider) Owner(ctx context.Context, asking string, key source.Key) (n Identity, owned bool, err error) {
	volumes, err := p.volumes(ctx)
	if err != nil {
		return Identity{}, false, err
	}
	for _, v := range volumes {
		for _, k := range v.keys() {
			if k == key && (v.Owns || !p.c.Catalog.Has(asking, key)) {
				return v.full(), true, nil
			}
		}
	}
	return Identity{}, false, nil
}

// volumes returns the volumes of all readable rows.
func (p *Provider) volumes(ctx context.Context) (all []Volume, err error) {
	select {
	case <-p.loaded:
	default:
		values, err := p.c.KV.LoadBucket(ctx, bucket)
		if err != nil {
			return nil, fmt.Errorf("read the named volumes: %w", err)
		}
		for name, value := range values.Sound {
			if v, err := decode(name, value); err == nil {
				all = append(all, v)
			}
		}
		return all, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rows {
		if r.unreadable == "" {
			all = append(all, r.v)
		}
	}
	return all, nil
}
