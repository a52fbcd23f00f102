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

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Name is this source's name in the catalog.
const Name = "named"

// bucket is the journal's bucket for the rows.
const bucket = "named"

var (
	// ErrNotFound means that there is no volume of that name.
	ErrNotFound = errors.New("no such volume")
	// ErrUnknown means that the rows have not been read, so that no name can be answered for yet.
	ErrUnknown = errors.New("named volumes have not been read yet")
	// ErrConflict means that a volume is in use, or exists with other options.
	ErrConflict = errors.New("conflict")
)

// KV stores values durably; the journal implements it.
type KV interface {
	LoadBucket(ctx context.Context, bucket string) (state.Values, error)
	// CommitBucket makes all changes durable or none; a nil value deletes the key.
	CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error
}

// Mounts is what named volumes need from the manager and the kernel.
type Mounts interface {
	// Mounted waits until the pod's volumes are mounted as wanted. It returns early with a driver's
	// answer that makes waiting useless.
	Mounted(ctx context.Context, uid types.UID) error
	// Gone waits until none of the pod's volumes is mounted.
	Gone(ctx context.Context, uid types.UID) error
	// Give returns the path at which the pod's container finds its only volume, and gives the
	// directory there to the owner.
	Give(ctx context.Context, pod source.Key, container string, o state.Owner) (string, error)
	// Holders returns who else holds the pod's volumes.
	Holders(ctx context.Context, uid types.UID) ([]Holder, error)
	// Waits returns a sentence for each thing that the pod's volumes wait for; none if they are
	// mounted.
	Waits(uid types.UID) []string
}

// Claims is what named volumes need from the controller.
type Claims interface {
	Shelf
	// Claim returns what has become of a claim's volume, and a channel that is closed at the next change.
	Claim(claim source.Key) (ClaimState, <-chan struct{})
	// DeleteNamed calls withdraw and then deletes the claim, and its volume if the reclaim policy
	// says so, for the audit log as the act of by. It returns when that is done. note says where a retained
	// volume is.
	DeleteNamed(ctx context.Context, by Asker, claim source.Key, reason string, withdraw func()) (note string, err error)
	// Reclaim makes the volume of a claim go with the claim, or stay. It does nothing if the claim has none yet.
	Reclaim(ctx context.Context, claim source.Key, del bool) error
	// Ends returns the words that end the use of a pod, if csi-volmgr delete pod does not.
	Ends(pod source.Key) string
}

// Config configures a Provider; every field but Lost, Spoken, Started and NomadAllow is required.
type Config struct {
	KV      KV
	Catalog *source.Catalog
	Mounts  Mounts
	Claims  Claims
	// BootID identifies this boot of the node.
	BootID string
	// Lost reports whether the journal may have lost records and no operator has accepted that. Then a
	// removal that was read from the journal waits.
	Lost func() bool
	// Spoken reports whether every other source of this node has said which objects it has; nil means always.
	Spoken func() bool
	// Started returns when the process with an id started, in any unit, and "" if there is none; nil is unknown.
	Started func(pid int32) string
	// NomadAllow is what volumes of Nomad may have besides their own claims; nil is nothing.
	NomadAllow []NomadRule
	Logger     *slog.Logger
}

// Provider holds the named volumes. Its methods are safe for concurrent use. Call Run once.
type Provider struct {
	c      Config
	loaded chan struct{} // closed when the rows are read
	wake   chan struct{} // capacity 1: Run must decide again

	mu       sync.Mutex      // guards rows and their fields, except for turn
	rows     map[string]*row // by name
	settling                 // guarded by mu
}

// row is the state of one named volume.
type row struct {
	turn chan struct{} // contains a token while no durable change of the row is in progress

	v Volume
	facts
	looking bool
	// doubted means that its removal was read from a journal that may have lost newer records.
	doubted bool
	// unreadable is why the journal's value could not be read. v then has only a name.
	unreadable string
	// contested is why a row of an earlier version does not own its keys.
	contested string
}

func newRow(v Volume) *row {
	r := &row{turn: make(chan struct{}, 1), v: v}
	r.turn <- struct{}{}
	return r
}

// New returns a Provider without volumes; Run reads them.
func New(c Config) *Provider {
	return &Provider{
		c: c, loaded: make(chan struct{}), wake: make(chan struct{}, 1), rows: map[string]*row{},
		settling: settling{unsettled: true, woken: make(chan struct{})},
	}
}

// Load reads the rows and delivers their claims and pods to the catalog. An unreadable row may want
// a pod, so it keeps the source from being declared synced.
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
		if err != nil { // also of an object that the catalog would refuse: its pod may have the volume
			p.rows[name] = unreadable(name, err.Error())
			p.rows[name].v.FrontEnd = v.FrontEnd // as far as it was read
			continue
		}
		r := newRow(v.atBoot(p.c.BootID))
		r.lastUse, r.doubted = time.Now(), doubted(r.v, p.c.Lost != nil && p.c.Lost())
		p.rows[name] = r
		u.Put = append(u.Put, wantedObjects(r.v)...)
	}
	all := true
	for _, r := range p.rows {
		if r.unreadable != "" {
			all = false
			p.c.Logger.Error("named volume is unreadable", "volume", r.v.Name, "err", r.unreadable)
		}
	}
	p.mu.Unlock()
	p.ownAll()
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

// wantedObjects returns the catalog objects of a volume. A volume that is being removed has none,
// because its claim is withdrawn, and one that is being restored has its data elsewhere.
func wantedObjects(v Volume) []runtime.Object {
	if v.Removing || v.From != "" {
		return nil
	}
	objects := v.claimObjects()
	if v.Listed {
		objects = append(objects, v.pod())
	}
	return objects
}

// find waits until the rows have been read and returns the volume's.
func (p *Provider) find(ctx context.Context, name string) (*row, error) {
	if err := p.waitLoaded(ctx); err != nil {
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

func (p *Provider) waitLoaded(ctx context.Context) error {
	select {
	case <-p.loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// volume returns the row's current volume.
func (p *Provider) volume(r *row) Volume {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.v
}

// lock takes the row's turn; release returns it.
func (r *row) lock(ctx context.Context) (release func(), err error) {
	select {
	case <-r.turn:
		return func() { r.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// write makes v the row's volume, durably. The caller has the row's turn. write ignores the end of
// ctx, since the caller could not know whether an interrupted write took effect.
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

// signal makes Run decide again.
func (p *Provider) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// Run loads the rows, resumes removals and restorations that a restart interrupted, and withdraws the pods of unused
// volumes, until ctx ends.
func (p *Provider) Run(ctx context.Context) error {
	if err := p.Load(ctx); err != nil {
		return err
	}
	p.c.Catalog.Subscribe(p.changed)
	var work sync.WaitGroup
	defer work.Wait()
	p.mu.Lock()
	rows := slices.Collect(maps.Values(p.rows))
	p.mu.Unlock()
	for _, r := range rows {
		switch v := p.volume(r); {
		case v.Removing && p.isDoubted(r):
		case v.Removing:
			work.Go(func() { p.resumeRemoval(ctx, r) })
		case v.From != "":
			work.Go(func() { p.resumeRestore(ctx, r) })
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
		for _, r := range p.accepted() {
			work.Go(func() { p.resumeRemoval(ctx, r) })
		}
		p.settle(ctx, func(f func()) { work.Go(f) })
		until := p.decide(time.Now(), func(f func()) { work.Go(f) }, ctx)
		timer.Stop()
		if !until.IsZero() {
			timer.Reset(time.Until(until))
		}
	}
}

// resumeRemoval completes a removal that a restart interrupted. If that fails, the volume stays
// until its user tries again.
func (p *Provider) resumeRemoval(ctx context.Context, r *row) {
	if _, err := p.remove(ctx, r, Asker{}); err != nil && ctx.Err() == nil {
		p.c.Logger.Warn("cannot complete the removal of a named volume", "volume", r.v.Name, "err", err)
	}
}

// decide starts what is due for each row. It returns the time of the next decision, which is zero
// if only an event can change anything.
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

// lookTime limits one look at all processes of the node.
const lookTime = 30 * time.Second

// look asks the kernel who holds the volume.
func (p *Provider) look(ctx context.Context, r *row) {
	begun := time.Now()
	bounded, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found, err := p.c.Mounts.Holders(bounded, p.volume(r).podUID())
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	again := r.look.again + 1
	if r.lastUse.After(begun) {
		again = 0 // a use began or ended after the look began
	}
	r.look, r.looking = look{at: begun, found: found, err: err, again: again}, false
	p.mu.Unlock()
	p.signal()
}

// leave withdraws the volume's pod if the volume is still unused.
func (p *Provider) leave(ctx context.Context, r *row) {
	defer p.signal()
	defer func() {
		p.mu.Lock()
		r.looking = false
		p.mu.Unlock()
	}()
	release, err := r.lock(ctx)
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
		// The next start lists the pod again, looks, and withdraws it.
		p.c.Logger.Warn("cannot store the end of a named volume's use", "volume", v.Name, "err", err)
		p.mu.Lock()
		r.v = v
		p.mu.Unlock()
	}
	p.c.Logger.Info("named volume has no use left", "volume", v.Name)
}

// withdrawPod deletes the volume's pod from the catalog, which states that its users have ended.
func (p *Provider) withdrawPod(v Volume) {
	// An update without objects cannot fail.
	_ = p.c.Catalog.Apply(Name, source.Update{Delete: []source.Key{v.podKey()}})
}
