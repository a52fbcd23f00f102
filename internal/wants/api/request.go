package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// maxBatch limits the requests that share a durable write, so that the first requests of a burst
// take effect while the last ones are still being written.
const maxBatch = 64

// item is an object to store or, without object and value, to delete.
type item struct {
	key    source.Key
	object runtime.Object
	value  []byte
}

// request is one call of Apply or Delete.
type request struct {
	items   []item
	results []Result      // of the applied items; valid when done is closed
	err     error         // valid when done is closed
	done    chan struct{} // closed when the request has been served
}

// do serves a request. The request that gets the token serves all that are waiting at that moment
// with one durable write, so that pods that arrive together cost few writes.
func (p *Provider) do(ctx context.Context, r *request) error {
	p.mu.Lock()
	p.waiting = append(p.waiting, r)
	p.mu.Unlock()
	for {
		select {
		case <-r.done:
			return r.err
		case <-p.turn:
			p.serve(ctx)
			p.turn <- struct{}{}
		case <-ctx.Done():
			return p.abandon(ctx, r)
		}
	}
}

// abandon removes r from the queue unless it is already being served.
func (p *Provider) abandon(ctx context.Context, r *request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, r); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return context.Cause(ctx)
	}
	select {
	case <-r.done:
		return r.err
	default:
		return fmt.Errorf("still being written and may take effect: %w", context.Cause(ctx))
	}
}

// serve serves the requests at the head of the queue. The caller has the token.
func (p *Provider) serve(ctx context.Context) {
	batch := p.next()
	if len(batch) > 1 {
		ctx = context.WithoutCancel(ctx) // the end of one caller's context must not fail the others
	}
	if err := p.load(ctx); err != nil {
		for _, r := range batch {
			r.err = err
			close(r.done)
		}
		return
	}
	var items []item
	changes := make([][]item, len(batch))
	for i, r := range batch {
		changes[i] = p.changesOf(r)
		items = append(items, changes[i]...)
	}
	err := p.commit(ctx, items)
	for i, r := range batch {
		if err != nil && len(changes[i]) > 0 {
			r.err = err
			if len(batch) > 1 { // separately, so that each request gets its own result
				r.err = p.commit(ctx, changes[i])
			}
		}
		close(r.done)
	}
}

// next removes requests from the queue that may share a durable write. A request with a secret is
// written alone, because a secret has its own file. A second change of an object starts the next
// write, so that it does not hide the first one from the catalog.
func (p *Provider) next() (batch []*request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	touched := map[source.Key]bool{}
	alone := func(it item) bool { return it.key.Kind == resolve.KindSecret }
	twice := func(it item) bool { return touched[it.key] }
	for _, r := range p.waiting {
		if len(batch) == maxBatch || len(batch) > 0 &&
			(slices.ContainsFunc(r.items, alone) || slices.ContainsFunc(r.items, twice)) {
			break
		}
		batch = append(batch, r)
		if slices.ContainsFunc(r.items, alone) {
			break
		}
		for _, it := range r.items {
			touched[it.key] = true
		}
	}
	clear(p.waiting[:len(batch)]) // release the requests, their objects and values; the array outlives them
	p.waiting = p.waiting[len(batch):]
	return batch
}

// changesOf returns the items of a request that change something, and stores the request's results.
func (p *Provider) changesOf(r *request) (changes []item) {
	if r.err = p.checkImmutable(r.items); r.err != nil {
		return nil
	}
	for _, it := range r.items {
		if it.object == nil {
			if p.has(it.key) {
				changes = append(changes, it)
			} else {
				r.err = fmt.Errorf("%s: %w among what was applied", it.key, source.ErrNotFound)
			}
			continue
		}
		change := p.change(it.key, it.object)
		r.results = append(r.results, Result{Key: it.key, Change: change})
		if change != Unchanged {
			changes = append(changes, it)
		}
	}
	return changes
}

// checkImmutable returns an error if the items change fields that must not change.
func (p *Provider) checkImmutable(items []item) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, it := range items {
		for _, f := range resolve.CheckChange(p.objects[it.key], it.object) {
			errs = append(errs, fmt.Errorf("%s: %s", it.key, f))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrImmutable, errors.Join(errs...))
}

// has reports whether an object, readable or not, is stored under the key.
func (p *Provider) has(key source.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.objects[key]
	_, broken := p.unreadable[key]
	if key.Kind == resolve.KindSecret && !broken {
		_, broken = p.unreadable[fileKey(key)]
	}
	return ok || broken
}
