package token

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Cache keeps tokens in memory until they are to be renewed, and asks for one
// of a kind at a time. It may be used by any goroutine.
type Cache struct {
	issuer Issuer
	log    *slog.Logger

	mu      sync.Mutex // guards entries; never held while the issuer is asked
	entries map[Request]*entry
}

// entry is the token of one request.
type entry struct {
	turn  chan struct{} // capacity 1: held by who looks at token and may replace it
	token Token
	// expires is the token's, guarded by Cache.mu; zero while there is none.
	expires time.Time
}

// NewCache returns an empty cache before issuer. logger may be nil for no log.
func NewCache(issuer Issuer, logger *slog.Logger) *Cache {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Cache{issuer: issuer, log: logger, entries: map[Request]*entry{}}
}

// Token implements Issuer. A token that is to be renewed and cannot be is
// returned as long as it has not expired.
func (c *Cache) Token(ctx context.Context, r Request) (Token, error) {
	if err := r.Check(); err != nil {
		return Token{}, err
	}
	e := c.entry(r)
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return Token{}, fmt.Errorf("token of service account %s/%s: %w", r.Pod.Namespace, r.Pod.ServiceAccount, context.Cause(ctx))
	}
	defer func() { <-e.turn }()
	now := time.Now()
	if e.token.Value != "" && now.Before(RenewAt(r, e.token)) {
		return e.token, nil
	}
	t, err := c.issuer.Token(ctx, r)
	if err == nil && (t.Value == "" || !t.Expires.After(time.Now())) {
		err = fmt.Errorf("the issuer answered with a %v", t)
	}
	switch {
	case err == nil:
	case e.token.Value != "" && time.Now().Before(e.token.Expires):
		c.log.Warn("token cannot be renewed; the one there is is used until it expires",
			"pod", string(r.Pod.UID), "audience", r.Audience, "expires", e.token.Expires, "err", err)
		return e.token, nil
	default:
		return Token{}, fmt.Errorf("token of service account %s/%s: %w", r.Pod.Namespace, r.Pod.ServiceAccount, err)
	}
	if t.Issued.IsZero() {
		t.Issued = now
	}
	e.token = t
	c.keep(r, e)
	return t, nil
}

// entry returns the entry of r, a new one where there is none.
func (c *Cache) entry(r Request) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[r]
	if e == nil {
		e = &entry{turn: make(chan struct{}, 1)}
		c.entries[r] = e
	}
	return e
}

// Soonest returns when the token expires that does so first; ok is false where
// none is kept.
func (c *Cache) Soonest() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if !e.expires.IsZero() && (!ok || e.expires.Before(at)) {
			at, ok = e.expires, true
		}
	}
	return at, ok
}

// keep notes how long e's token is good, and forgets what nobody renewed: the
// tokens of pods that are gone.
func (c *Cache) keep(r Request, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.expires = e.token.Expires
	c.entries[r] = e
	for other, o := range c.entries {
		if !o.expires.IsZero() && !o.expires.After(time.Now()) {
			delete(c.entries, other)
		}
	}
}
