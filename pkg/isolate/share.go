package isolate

import (
	"context"
	"fmt"
)

// restPercent is how much of a pool the calls may take together that say no share.
const restPercent = 20

// Share is what calls have in common that may hang together: the server that they
// wait for, the kind of volume, who owns the pods. As many calls of one share as
// Percent of [Config.Limit] may be under way, and the others go on.
type Share struct {
	// Name says what it is, for people too: "server 10.0.0.7".
	Name string
	// Percent is at least 1; every call of the same name says the same.
	Percent int
}

// sharesKey is the context's key of the shares that a call counts for.
type sharesKey struct{}

// WithShares returns a context for [Pool.Do] by which its calls count for shares.
func WithShares(ctx context.Context, shares ...Share) context.Context {
	return context.WithValue(ctx, sharesKey{}, shares)
}

// sharesOf returns what the calls of ctx count for.
func sharesOf(ctx context.Context) []Share {
	if shares, _ := ctx.Value(sharesKey{}).([]Share); len(shares) > 0 {
		return shares
	}
	return []Share{{Name: "what belongs to no volume", Percent: restPercent}}
}

// room reports whether one more call of each share may begin. It is an error
// where all that are under way for a share were left behind. p.mu is held.
func (p *Pool) room(shares []Share) (bool, error) {
	for _, s := range shares {
		most := max(1, p.cfg.Limit*s.Percent/100)
		if p.shares[s.Name] < most {
			continue
		}
		for _, c := range p.calls {
			if !c.left && c.of(s.Name) {
				return false, nil
			}
		}
		return false, fmt.Errorf("%w: %d of %s, of %d in all", ErrLimit, most, s.Name, p.cfg.Limit)
	}
	return true, nil
}

// of reports whether the call counts for the share.
func (c *call) of(name string) bool {
	for _, s := range c.shares {
		if s.Name == name {
			return true
		}
	}
	return false
}

// count adds a call's begin (1) or end (-1) to its shares. p.mu is held.
func (p *Pool) count(shares []Share, n int) {
	for _, s := range shares {
		if p.shares[s.Name] += n; p.shares[s.Name] == 0 {
			delete(p.shares, s.Name)
		}
	}
}
