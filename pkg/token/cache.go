package token

import (
	"container/heap"
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

	mu      sync.Mutex // guards what follows; never held while the issuer is asked
	entries map[Request]*entry
	kept    byExpiry // those with a token
}

// entry is the token of one request.
type entry struct {
	request Request
	turn    chan struct{} // capacity 1: held by who looks at token and may replace it
	token   Token
	// expires is the token's, and at its place in Cache.kept, -1 while it has none;
	// guarded by Cache.mu.
	expires time.Time
	at      int
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
		return Token{}, fmt.Errorf("token of service account %s/%s: %w", r.Pod.Namespace, r.Pod.ServiceAccount,
			context.Cause(ctx))
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
	c.keep(e)
	return t, nil
}

// entry returns the entry of r, a new one where there is none.
func (c *Cache) entry(r Request) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[r]
	if e == nil {
		e = &entry{request: r, turn: make(chan struct{}, 1), at: -1}
		c.entries[r] = e
	}
	return e
}

// Soonest returns when the token expires that does so first; ok is false where
// none is kept.
func (c *Cache) Soonest() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) == 0 {
		return time.Time{}, false
	}
	return c.kept[0].expires, true
}

// keep notes how long e's token is good, and forgets what no pod renewed: the
// tokens of pods that are gone.
func (c *Cache) keep(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.expires = e.token.Expires
	c.entries[e.request] = e
	if e.at < 0 {
		heap.Push(&c.kept, e)
	} else {
		heap.Fix(&c.kept, e.at)
	}
	for now := time.Now(); len(c.kept) > 0 && !c.kept[0].expires.After(now); {
		gone := heap.Pop(&c.kept).(*entry)
		if c.entries[gone.request] == gone { // and not one that came after it
			delete(c.entries, gone.request)
		}
	}
}

// byExpiry is a heap of entries: the one whose token expires first is the first.
type byExpiry []*entry

func (b byExpiry) Len() int           { return len(b) }
func (b byExpiry) Less(i, j int) bool { return b[i].expires.Before(b[j].expires) }
func (b byExpiry) Swap(i, j int)      { b[i], b[j] = b[j], b[i]; b[i].at, b[j].at = i, j }

// Push implements heap.Interface.
func (b *byExpiry) Push(e any) {
	e.(*entry).at = len(*b)
	*b = append(*b, e.(*entry))
}

// Pop implements heap.Interface.
func (b *byExpiry) Pop() any {
	last := len(*b) - 1
	e := (*b)[last]
	(*b)[last], e.at = nil, -1
	*b = (*b)[:last]
	return e
}
