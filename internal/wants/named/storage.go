package named

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience is how long Create waits, if its caller does not say, for an event without which nothing can
// begin. A driver that starts with the daemon registers within a second or two, and podman waits five
// seconds for an answer.
const Patience = 4 * time.Second

// ClaimState is what has become of a claim's volume.
type ClaimState struct {
	// Bound means that the claim has a volume.
	Bound bool
	// Refused means that only a change of the claim, its class or its driver helps.
	Refused bool
	// Stalled means that nothing has begun and that only an event helps, such as the registration of the
	// driver.
	Stalled bool
	// Why says why the claim has no volume, and Next what a user can do about it. Both may be "".
	Why, Next string
}

// hopeless returns why waiting for the claim's volume is useless; nil if it is not. A stalled claim is
// hopeless for a caller who has waited long enough.
func (c ClaimState) hopeless(late bool) error {
	switch {
	case c.Bound || !c.Refused && !(c.Stalled && late):
		return nil
	case c.Next == "":
		return errors.New(c.Why)
	}
	return fmt.Errorf("%s; no volume was made; %s", c.Why, c.Next)
}

// awaitStorage waits until the row's claim has a volume. If waiting is useless, or its caller goes away
// from a stalled claim, it removes what cannot be of use: a volume that is new, or one for which nothing
// has begun, so that no Create of it has succeeded.
func (p *Provider) awaitStorage(ctx context.Context, r *row, patience time.Duration, isNew bool) error {
	v := p.volume(r)
	key := v.claimKey()
	var late <-chan time.Time // of a wait for an event that has not come
	var passed bool
	var why error
	for {
		c, changed := p.c.Claims.Claim(key)
		if c.Bound {
			return nil
		}
		useless := c.hopeless(passed)
		why = cmp.Or(c.hopeless(true), why)
		gone := p.checkPresent(r) // another Create may have removed it
		if gone != nil || useless != nil && (!isNew && !c.Stalled || p.undo(ctx, r)) {
			return fmt.Errorf("create volume %s: claim %s/%s has no volume: %w", v.Name, key.Namespace, key.Name,
				cmp.Or(why, gone))
		}
		switch {
		case !c.Stalled:
			late, passed = nil, false
		case late == nil:
			late = time.After(cmp.Or(patience, Patience))
		}
		select {
		case <-changed:
		case <-late:
			passed = true
		case <-ctx.Done():
			if c.Stalled {
				p.undo(ctx, r)
			}
			return fmt.Errorf("create volume %s: claim %s/%s has no volume yet: %s: %w", v.Name, key.Namespace, key.Name,
				c.Why, context.Cause(ctx))
		}
	}
}

// undo removes a volume whose claim gets no storage, and the pod of a mount that was requested
// meanwhile. It reports false for a claim that has its storage after all, or may get it: that volume
// stays.
func (p *Provider) undo(ctx context.Context, r *row) (undone bool) {
	ctx = context.WithoutCancel(ctx)
	release, err := r.lock(ctx)
	if err != nil {
		return true
	}
	defer release()
	v := p.volume(r)
	if p.checkPresent(r) != nil {
		return true // another Create has removed it
	}
	if c, _ := p.c.Claims.Claim(v.claimKey()); c.hopeless(true) == nil {
		return false
	}
	v.Removing = true
	p.mu.Lock()
	r.v = v // a mount in progress must not store the row again
	p.mu.Unlock()
	p.withdrawPod(v)
	p.withdrawClaim(v)
	if err := p.drop(ctx, v); err != nil {
		p.c.Logger.Warn("cannot delete the row of a refused volume", "volume", v.Name, "err", err)
	}
	return true
}

// created ends one Create of the row.
func (p *Provider) created(r *row) {
	p.mu.Lock()
	r.creates--
	p.mu.Unlock()
}

// storage reports whether the volume has its storage, and says why not.
func (p *Provider) storage(v Volume) (has bool, why string) {
	if v.Options.Existing || v.Options.Driver != "" {
		return true, ""
	}
	key := v.claimKey()
	c, _ := p.c.Claims.Claim(key)
	if c.Bound || c.Why == "" {
		return c.Bound, ""
	}
	return false, fmt.Sprintf("claim %s/%s has no volume yet: %s", key.Namespace, key.Name, c.Why)
}
