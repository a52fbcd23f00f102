package token

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
)

// Cache keeps tokens in memory until they must be renewed. It makes one call at a time
// for each request. It may be used from any goroutine.
type Cache struct {
	issuer csiclient.TokenSource
	log    *slog.Logger

	mu      sync.Mutex // guards the fields below; never held during a call of the issuer
	entries map[csiclient.TokenRequest]*entry
	kept    byExpiry // entries with a token
}

// entry holds the token of one request.
type entry struct {
	request csiclient.TokenRequest
	turn    chan struct{} // capacity 1: a lock that guards token
	token   csiclient.Token
	// expires is the token's expiry, and at the entry's index in Cache.kept, -1 if it is
	// not there. users counts the calls that use the entry. All are guarded by Cache.mu.
	expires time.Time
	at      int
	users   int
}

// NewCache returns an empty cache of issuer's tokens. logger may be nil for no log.
func NewCache(issuer csiclient.TokenSource, logger *slog.Logger) *Cache {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Cache{issuer: issuer, log: logger, entries: map[csiclient.TokenRequest]*entry{}}
}

// Token implements [csiclient.TokenSource]. If a token cannot be renewed, it is returned until it expires.
func (c *Cache) Token(ctx context.Context, r csiclient.TokenRequest) (csiclient.Token, error) {
	if err := Check(r); err != nil {
		return csiclient.Token{}, err
	}
	e := c.entry(r)
	defer c.leave(e)
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return csiclient.Token{}, fmt.Errorf("token of service account %s/%s: %w", r.Pod.Namespace, r.Pod.ServiceAccount,
			context.Cause(ctx))
	}
	defer func() { <-e.turn }()
	now := time.Now()
	if e.token.Value != "" && now.Before(r.RenewAt(e.token)) {
		return e.token, nil
	}
	t, err := c.issuer.Token(ctx, r)
	if err == nil && (t.Value == "" || !t.Expires.After(time.Now())) {
		err = fmt.Errorf("the issuer answered with a %v", t)
	}
	switch {
	case err == nil:
	case e.token.Value != "" && time.Now().Before(e.token.Expires):
		c.log.Warn("token cannot be renewed; the current one is used until it expires",
			"pod", string(r.Pod.UID), "audience", r.Audience, "expires", e.token.Expires, "err", err)
		return e.token, nil
	default:
		return csiclient.Token{}, fmt.Errorf("token of service account %s/%s: %w", r.Pod.Namespace, r.Pod.ServiceAccount, err)
	}
	if t.Issued.IsZero() {
		t.Issued = now
	}
	e.token = t
	c.keep(e)
	return t, nil
}

// entry returns the entry of r, and creates it if needed. Its caller calls leave.
func (c *Cache) entry(r csiclient.TokenRequest) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[r]
	if e == nil {
		e = &entry{request: r, turn: make(chan struct{}, 1), at: -1}
		c.entries[r] = e
	}
	e.users++
	return e
}

// leave ends a use of the entry. An entry without a token is removed after its last use: its pod may
// be gone before there is one.
func (c *Cache) leave(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.users--; e.users == 0 && e.at < 0 && c.entries[e.request] == e {
		delete(c.entries, e.request)
	}
}

// Soonest returns the earliest expiry of the cached tokens; ok is false if there are none.
func (c *Cache) Soonest() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) == 0 {
		return time.Time{}, false
	}
	return c.kept[0].expires, true
}

// keep records the expiry of e's token, and removes expired tokens: their pods are gone,
// since no pod has renewed them.
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
		if c.entries[gone.request] == gone { // not a newer entry
			delete(c.entries, gone.request)
		}
	}
}

// byExpiry is a heap of entries. The first one's token expires first.
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
