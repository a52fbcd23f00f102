package ephemeral

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is this source's name in the catalog.
const Name = "ephemeral"

// KV stores values durably; the journal implements it.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable or none; a nil value deletes the key.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Claims is what this source needs from the controller.
type Claims interface {
	// ClaimsKnown returns a channel that is closed once Left knows what earlier claims have left.
	ClaimsKnown() <-chan struct{}
	// ClaimsChanged returns a channel that is closed when a result of Left or DeleteEphemeral may have changed.
	ClaimsChanged() <-chan struct{}
	// Left says, in a sentence, that a claim which no source lists has left a volume, and how it goes; "" if none is
	// left.
	Left(claim source.Key) string
	// DeleteEphemeral deletes what a claim has that no source lists, and returns when it is gone. A volume that the
	// reclaim policy keeps gets another claim's name; note says which.
	DeleteEphemeral(ctx context.Context, claim source.Key, reason string) (note string, err error)
}

// Config configures a Provider; every field is required.
type Config struct {
	KV      KV
	Catalog *source.Catalog
	Claims  Claims
	// Silent reports whether a source of this node has not listed its pods and claims yet. The caller must call
	// [Provider.Wake] when the result changes, or that of Lost.
	Silent func() bool
	// Lost reports whether the journal may have lost records and no operator has accepted that.
	Lost   func() bool
	Logger *slog.Logger
}

// storePause is the pause after the journal refused a row: no event says that a full disk was repaired.
const storePause = 5 * time.Second

// Provider makes and deletes the claims. Its methods are safe for concurrent use. Call Run once.
type Provider struct {
	c    Config
	wake chan struct{} // capacity 1: Run must decide again

	mu    sync.Mutex // guards the fields below
	rows  map[source.Key]*row
	uses  uses
	pods  map[source.Key]bool // pods that changed
	dirty map[source.Key]bool // claims to decide about
	// waiting are the claims that something else than their pods and objects keeps waiting.
	waiting map[source.Key]bool
}

// New returns a Provider without rows; Run reads them.
func New(c Config) *Provider {
	return &Provider{
		c: c, wake: make(chan struct{}, 1), rows: map[source.Key]*row{}, uses: newUses(), pods: map[source.Key]bool{},
		dirty: map[source.Key]bool{}, waiting: map[source.Key]bool{},
	}
}

// Load reads the rows and delivers the claims of pods that are not known to be gone.
func (p *Provider) Load(ctx context.Context) error {
	values, err := p.c.KV.LoadBucket(ctx, bucket)
	if err != nil {
		return fmt.Errorf("load the ephemeral claims: %w", err)
	}
	u := source.Update{Unreadable: map[source.Key]string{}}
	p.mu.Lock()
	for name, why := range values.Unreadable {
		p.addUnreadable(name, why, u)
	}
	for name, value := range values.Sound {
		r, err := decode(name, value)
		if err == nil {
			if faults := resolve.Check(r.Claim); len(faults) > 0 {
				err = fmt.Errorf("claim %s: %s", name, faults[0])
			}
		}
		if err != nil {
			p.addUnreadable(name, err.Error(), u)
			continue
		}
		key := claimKey(r.Claim.Namespace, r.Claim.Name)
		p.rows[key], p.dirty[key] = &row{record: r}, true
		if !r.Going {
			u.Put = append(u.Put, r.Claim)
		}
	}
	p.mu.Unlock()
	err = p.c.Catalog.Apply(Name, u)
	p.c.Catalog.Synced(Name)
	return err
}

// addUnreadable adds the row of a claim that may exist: nothing is made or deleted under its name.
func (p *Provider) addUnreadable(name, why string, u source.Update) {
	key := keyOfRow(name)
	p.rows[key], u.Unreadable[key] = &row{unreadable: why}, why
	p.c.Logger.Error("the row of an ephemeral claim is unreadable", "claim", name, "err", why)
}

// Wake makes Run decide about every claim again.
func (p *Provider) Wake() {
	p.mu.Lock()
	for key := range p.rows {
		p.dirty[key] = true
	}
	maps.Copy(p.dirty, p.waiting)
	p.mu.Unlock()
	p.signal()
}

func (p *Provider) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// changed notes that an object has changed.
func (p *Provider) changed(key source.Key) {
	switch key.Kind {
	case resolve.KindPod:
		p.mu.Lock()
		p.pods[key] = true
	case resolve.KindClaim:
		p.mu.Lock()
		if p.rows[key] == nil && !p.uses.template(key) {
			p.mu.Unlock()
			return
		}
		p.dirty[key] = true
	default:
		return
	}
	p.mu.Unlock()
	p.signal()
}

// Run makes and deletes claims until ctx ends. An error means that the journal could not be read.
func (p *Provider) Run(ctx context.Context) error {
	if err := p.Load(ctx); err != nil {
		return err
	}
	select {
	case <-p.c.Claims.ClaimsKnown():
	case <-ctx.Done():
		return nil
	}
	p.c.Catalog.Subscribe(p.changed)
	for _, pod := range p.c.Catalog.Pods() {
		p.changed(source.Key{Kind: resolve.KindPod, Namespace: pod.Namespace, Name: pod.Name})
	}
	var work sync.WaitGroup
	defer work.Wait()
	for {
		claimsChanged, again := p.c.Claims.ClaimsChanged(), (<-chan time.Time)(nil)
		if err := p.decide(ctx, func(f func()) { work.Go(f) }); err != nil && ctx.Err() == nil {
			p.c.Logger.Error("cannot store ephemeral claims; they wait", "err", err)
			again = time.After(storePause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-again:
		case <-claimsChanged:
			p.mu.Lock()
			maps.Copy(p.dirty, p.waiting)
			p.mu.Unlock()
		}
	}
}

// take returns the claims to decide about.
func (p *Provider) take() []source.Key {
	p.mu.Lock()
	pods := p.pods
	p.pods = map[source.Key]bool{}
	p.mu.Unlock()
	seen := map[source.Key]*corev1.Pod{}
	for key := range pods {
		seen[key], _ = p.c.Catalog.Get(key).(*corev1.Pod)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, pod := range seen {
		for _, claim := range p.uses.set(key, pod) {
			if p.rows[claim] != nil || p.uses.template(claim) || p.waiting[claim] {
				p.dirty[claim] = true
			}
		}
	}
	for claim, r := range p.rows {
		if r.unreadable != "" {
			continue
		}
		if pod, _ := r.owner(); pods[pod] {
			p.dirty[claim] = true
		}
	}
	claims := slices.SortedFunc(maps.Keys(p.dirty), source.Key.Compare)
	p.dirty = map[source.Key]bool{}
	return claims
}

// decide takes the next step for each claim that something changed for.
func (p *Provider) decide(ctx context.Context, start func(func())) error {
	claims := p.take()
	b := batch{values: map[string][]byte{}}
	for _, claim := range claims {
		p.mu.Lock()
		r := p.rows[claim]
		settled := r != nil && (r.erasing || r.unreadable != "")
		p.mu.Unlock()
		if !settled {
			p.step(ctx, claim, r, &b, start)
		}
	}
	if len(b.values) == 0 {
		return nil
	}
	if err := p.c.KV.CommitBucket(context.WithoutCancel(ctx), bucket, b.values); err != nil {
		for _, claim := range claims {
			if _, changes := b.values[rowName(claim)]; changes {
				p.setWait(claim, "it cannot be stored: "+err.Error(), false)
			}
		}
		p.mu.Lock()
		for _, claim := range claims {
			p.dirty[claim] = true
		}
		p.mu.Unlock()
		return fmt.Errorf("store %d ephemeral claims: %w", len(b.values), err)
	}
	for _, f := range b.stored {
		f()
	}
	return p.c.Catalog.Apply(Name, source.Update{Put: b.put, Delete: b.remove, Checked: true})
}

// batch is what one pass of decide makes durable, and what it then does.
type batch struct {
	values map[string][]byte
	stored []func()
	put    []runtime.Object
	remove []source.Key
}
