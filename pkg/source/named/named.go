package named

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is the catalog's name of this source.
const Name = "named"

// bucket of the journal has the rows.
const bucket = "named"

var (
	// ErrNotFound is wrapped where there is no volume of a name.
	ErrNotFound = errors.New("no such volume")
	// ErrUnknown is wrapped where the rows have not been read: nothing may be said of a name then.
	ErrUnknown = errors.New("named volumes are not read yet")
	// ErrConflict is wrapped where a volume is in use, or exists with other options.
	ErrConflict = errors.New("conflict")
)

// KV keeps values durably; the journal does.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable, or none; a nil value deletes.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Mounts is what named volumes need of the manager and the kernel.
type Mounts interface {
	// Mounted waits until the pod's volumes are mounted as wanted, and ends early with the
	// answer of a driver that forbids to go on.
	Mounted(ctx context.Context, uid types.UID) error
	// Gone waits until nothing of the pod's volumes is mounted.
	Gone(ctx context.Context, uid types.UID) error
	// Give returns the path at which the container of the pod finds its only volume. The
	// directory there is the owner's then.
	Give(ctx context.Context, pod source.Key, container string, o state.Owner) (string, error)
	// Holders returns who has the pod's volumes beside csi-volmgr.
	Holders(ctx context.Context, uid types.UID) ([]Holder, error)
	// Waits says in a sentence each what the pod's volumes wait for; none where they are mounted.
	Waits(uid types.UID) []string
}

// Claims is what named volumes need of the controller.
type Claims interface {
	// Bound waits until the claim has a volume, and ends early where only a change of the
	// claim, its class or its driver helps.
	Bound(ctx context.Context, claim source.Key) error
	// DeleteNamed calls withdraw, then deletes the claim, with its volume where the reclaim policy says
	// so, and returns when that is gone. note says where a volume is that stays.
	DeleteNamed(ctx context.Context, claim source.Key, reason string, withdraw func()) (note string, err error)
}

// Config is what a Provider needs; every field is required.
type Config struct {
	KV      KV
	Catalog *source.Catalog
	Mounts  Mounts
	Claims  Claims
	// BootID names this boot of the node.
	BootID string
	Logger *slog.Logger
}

// Provider holds the named volumes. Any goroutine may call its methods, Run once.
type Provider struct {
	c      Config
	loaded chan struct{} // closed when the rows are read
	wake   chan struct{} // capacity 1: a signal that Run decides anew

	mu   sync.Mutex      // guards what follows, and the rows but for their turns
	rows map[string]*row // by name
}

// row is one named volume as it stands.
type row struct {
	turn chan struct{} // has a token while no durable change of the row is under way

	v Volume
	facts
	looking bool
	// unreadable says why the journal's value of it could not be read; v has its name alone.
	unreadable string
}

func newRow(v Volume) *row {
	r := &row{turn: make(chan struct{}, 1), v: v}
	r.turn <- struct{}{}
	return r
}

// New returns a Provider without volumes; Run reads them.
func New(c Config) *Provider {
	return &Provider{c: c, loaded: make(chan struct{}), wake: make(chan struct{}, 1), rows: map[string]*row{}}
}

// Load reads the rows, and tells the catalog of their claims and pods. A row that cannot be
// read may want a pod, so the source has not spoken then.
func (p *Provider) Load(ctx context.Context) error {
	values, err := p.c.KV.LoadBucket(ctx, bucket)
	if err != nil {
		return fmt.Errorf("load named volumes: %w", err)
	}
	var u source.Update
	p.mu.Lock()
	for name, why := range values.Unreadable {
		p.rows[name] = unreadable(name, why)
	}
	for name, value := range values.Sound {
		v, err := decode(name, value)
		if err != nil {
			p.rows[name] = unreadable(name, err.Error())
			continue
		}
		r := newRow(v.booted(p.c.BootID))
		r.lastUse = time.Now()
		p.rows[name] = r
		u.Put = append(u.Put, wishes(r.v)...)
	}
	all := true
	for _, r := range p.rows {
		if r.unreadable != "" {
			all = false
			p.c.Logger.Error("named volume not readable", "volume", r.v.Name, "err", r.unreadable)
		}
	}
	p.mu.Unlock()
	err = p.c.Catalog.Apply(Name, u)
	if all {
		p.c.Catalog.Synced(Name)
	}
	close(p.loaded)
	return err
}

func unreadable(name, why string) *row {
	r := newRow(Volume{Name: name})
	r.unreadable = why
	return r
}

// wishes returns the objects of a volume. One that goes has none: its claim is withdrawn.
func wishes(v Volume) []runtime.Object {
	if v.Removing {
		return nil
	}
	objects := v.claimObjects()
	if v.Listed {
		objects = append(objects, v.pod())
	}
	return objects
}

// find waits until the rows are read, and returns the volume's.
func (p *Provider) find(ctx context.Context, name string) (*row, error) {
	if err := p.known(ctx); err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[name]
	switch {
	case r == nil:
		return nil, fmt.Errorf("volume %s: %w", name, ErrNotFound)
	case r.unreadable != "":
		return nil, fmt.Errorf("volume %s: %w: its row in the journal is not readable: %s", name, ErrUnknown, r.unreadable)
	}
	return r, nil
}

func (p *Provider) known(ctx context.Context) error {
	select {
	case <-p.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// value returns the row's volume as it is now.
func (p *Provider) value(r *row) Volume {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.v
}

// own takes the row's turn; what it returns gives the turn back.
func (r *row) own(ctx context.Context) (release func(), err error) {
	select {
	case <-r.turn:
		return func() { r.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// write makes v durable as the row's volume. The caller has the row's turn. It does not end
// with ctx: a change that is half written is none that a caller could act on.
func (p *Provider) write(ctx context.Context, r *row, v Volume) error {
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("volume %s: %w", v.Name, err)
	}
	if err := p.c.KV.CommitBucket(context.WithoutCancel(ctx), bucket, map[string][]byte{v.Name: value}); err != nil {
		return fmt.Errorf("volume %s: store it: %w", v.Name, err)
	}
	p.mu.Lock()
	r.v = v
	p.mu.Unlock()
	return nil
}

// signal has Run decide anew.
func (p *Provider) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// Run reads the rows, goes on with removals that a restart cut off, and takes back the pods of
// volumes without a use, until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	if err := p.Load(ctx); err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	p.mu.Lock()
	rows := slices.Collect(maps.Values(p.rows))
	p.mu.Unlock()
	for _, r := range rows {
		if v := p.value(r); v.Removing {
			work.Go(func() { p.goOnRemoving(ctx, r) })
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		until := p.decide(time.Now(), func(f func()) { work.Go(f) }, ctx)
		timer.Stop()
		if !until.IsZero() {
			timer.Reset(time.Until(until))
		}
	}
}

// goOnRemoving ends a removal that a restart cut off. Where that fails, the volume stays
// until its user asks again.
func (p *Provider) goOnRemoving(ctx context.Context, r *row) {
	if _, err := p.remove(ctx, r); err != nil && ctx.Err() == nil {
		p.c.Logger.Warn("removal of a named volume goes no further", "volume", r.v.Name, "err", err)
	}
}

// decide starts what is due of every row, and returns when the next is; zero for at an event.
func (p *Provider) decide(now time.Time, start func(func()), ctx context.Context) (until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rows {
		if r.looking || r.unreadable != "" {
			continue
		}
		switch m, at := next(r.v, r.facts, now); m {
		case stay:
			if !at.IsZero() && (until.IsZero() || at.Before(until)) {
				until = at
			}
		case ask:
			r.looking = true
			start(func() { p.look(ctx, r) })
		case leave:
			r.looking = true
			start(func() { p.leave(ctx, r) })
		}
	}
	return until
}

// lookTime bounds one look at all processes of the node.
const lookTime = 30 * time.Second

// look asks the kernel who holds the volume.
func (p *Provider) look(ctx context.Context, r *row) {
	begun := time.Now()
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found, err := p.c.Mounts.Holders(bounded, p.value(r).podUID())
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	again := r.look.again + 1
	if r.lastUse.After(begun) {
		again = 0 // what was seen is older than a use
	}
	r.look, r.looking = look{at: begun, found: found, err: err, again: again}, false
	p.mu.Unlock()
	p.signal()
}

// leave takes the volume's pod back, if the volume is still without a use.
func (p *Provider) leave(ctx context.Context, r *row) {
	defer p.signal()
	defer func() {
		p.mu.Lock()
		r.looking = false
		p.mu.Unlock()
	}()
	release, err := r.own(ctx)
	if err != nil {
		return
	}
	defer release()
	p.mu.Lock()
	v := r.v
	m, _ := next(v, r.facts, time.Now())
	p.mu.Unlock()
	if m != leave {
		return
	}
	p.withdrawPod(v)
	v.Listed, v.Path = false, ""
	if err := p.write(ctx, r, v); err != nil {
		// The next start lists the pod again, looks, and takes it back.
		p.c.Logger.Warn("end of a named volume's use is not stored", "volume", v.Name, "err", err)
		p.mu.Lock()
		r.v = v
		p.mu.Unlock()
	}
	p.c.Logger.Info("named volume has no use left", "volume", v.Name)
}

// withdrawPod takes the volume's pod back: the word that its users have ended.
func (p *Provider) withdrawPod(v Volume) {
	// An update without objects has nothing that could be refused.
	_ = p.c.Catalog.Apply(Name, source.Update{Delete: []source.Key{v.podKey()}})
}
