package isolate

import (
	"context"
	"fmt"
	"slices"
)

// restPercent is the share of a pool for all calls without a share of their own.
const restPercent = 20

// Share is a property of calls that may hang together, such as their server, their kind
// of volume or their pods' namespace. At most Percent of [Config.Limit] calls of one
// share run at a time, so that other calls can go on.
type Share struct {
	// Name describes the share and appears in errors: "server 10.0.0.7".
	Name string
	// Percent is at least 1 and the same in every call with this Name.
	Percent int
}

// sharesKey is the context key of a call's shares.
type sharesKey struct{}

// WithShares returns a context for [Pool.Do] that counts its calls towards the shares.
func WithShares(ctx context.Context, shares ...Share) context.Context {
	return context.WithValue(ctx, sharesKey{}, shares)
}

// sharesOf returns the shares that calls with ctx count towards.
func sharesOf(ctx context.Context) []Share {
	if shares, _ := ctx.Value(sharesKey{}).([]Share); len(shares) > 0 {
		return shares
	}
	return []Share{{Name: "calls of no volume", Percent: restPercent}}
}

// room reports whether one more call of each share may start. It fails if all running
// calls of a share were left behind. p.mu is held.
func (p *Pool) room(shares []Share) (bool, error) {
	for _, s := range shares {
		most := max(1, p.cfg.Limit*s.Percent/100)
		if p.shares[s.Name] < most {
			continue
		}
		for _, c := range p.calls {
			if !c.left && c.hasShare(s.Name) {
				return false, nil
			}
		}
		return false, fmt.Errorf("%w: the %d allowed for %s, of %d helpers", ErrLimit, most, s.Name, p.cfg.Limit)
	}
	return true, nil
}

// hasShare reports whether the call counts towards the share.
func (c *call) hasShare(name string) bool {
	return slices.ContainsFunc(c.shares, func(s Share) bool { return s.Name == name })
}

// count adds n to the call counts of the shares: 1 when a call starts, -1 when it ends.
// p.mu is held.
func (p *Pool) count(shares []Share, n int) {
	for _, s := range shares {
		if p.shares[s.Name] += n; p.shares[s.Name] == 0 {
			delete(p.shares, s.Name)
		}
	}
}
