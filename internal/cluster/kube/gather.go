package kube

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

const (
	// gatherAt is how many objects of one namespace must be waited for before they are listed: one
	// list of that many is cheaper than a get for each, also for the server.
	gatherAt = 64
	// gatherPage limits the objects in one answer. Of each page, at least one object in gatherShare
	// must be waited for, or the listing ends. In a large cluster few objects belong to this node,
	// so it ends after the first page.
	gatherPage  = 500
	gatherShare = 10
	// gatherReads limits the concurrent reads of single objects. The others are not yet in the
	// client's queue, so a list need not wait behind them.
	gatherReads = 16
)

// gather reads claims or volumes, which may be as many as the pods have claims: one by one, and by
// lists when very many are waited for, if the identity may list.
type gather struct {
	kind string
	list func(namespace string) listFunc

	mu      sync.Mutex     // guards the fields below
	waiting []*readRequest // in order of arrival
	reading int
	// listing means that a list is in progress. It answers only requests from before it began.
	listing bool
	// refused means that this identity may not list.
	refused bool
}

// readRequest is a pod's request for one object.
type readRequest struct {
	ctx context.Context // the caller's
	key source.Key
	// one reads the object alone.
	one    func(context.Context) (runtime.Object, string, error)
	alone  bool // a list did not contain it, or ended early
	answer chan answer
}

type answer struct {
	obj     runtime.Object
	version string // of the list that contained it, or of its own read
	err     error
}

func newGather(kind string, list func(namespace string) listFunc) *gather {
	return &gather{kind: kind, list: list}
}

// read returns an object as it was at some time after the call, and the version to watch from.
func (g *gather) read(ctx context.Context, key source.Key, one func(context.Context) (runtime.Object, string,
	error),
) (runtime.Object, string, error) {
	a := &readRequest{ctx: ctx, key: key, one: one, answer: make(chan answer, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	g.next()
	g.mu.Unlock()
	select {
	case r := <-a.answer:
		return r.obj, r.version, r.err
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting = slices.DeleteFunc(g.waiting, func(o *readRequest) bool { return o == a })
		return nil, "", context.Cause(ctx)
	}
}

// next starts all reads that the limits allow; the caller holds g.mu.
func (g *gather) next() {
	if !g.refused && !g.listing && len(g.waiting) >= gatherAt {
		count := map[string]int{}
		for _, a := range g.waiting {
			if !a.alone {
				count[a.key.Namespace]++
			}
		}
		for namespace, n := range count {
			if n >= gatherAt && !g.listing {
				g.listing = true
				wanted := g.listable(namespace)
				go g.runList(g.waiting[len(g.waiting)-1].ctx, namespace, wanted)
			}
		}
	}
	for g.reading < gatherReads && len(g.waiting) > 0 {
		a := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.reading++
		go func() {
			obj, version, err := a.one(a.ctx)
			a.answer <- answer{obj, version, err}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.reading--
			g.next()
		}()
	}
}

// listable returns the requests in a namespace that a list may answer; the caller holds g.mu.
func (g *gather) listable(namespace string) map[source.Key]*readRequest {
	out := map[source.Key]*readRequest{}
	for _, a := range g.waiting {
		if a.key.Namespace == namespace && !a.alone {
			out[a.key] = a
		}
	}
	return out
}

// runList lists a namespace for the requests in wanted, which were made before.
func (g *gather) runList(ctx context.Context, namespace string, wanted map[source.Key]*readRequest) {
	err := g.pages(ctx, namespace, wanted)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listing = false
	g.refused = g.refused || apierrors.IsForbidden(err)
	for _, a := range wanted {
		a.alone = true
	}
	g.next()
}

// refuse notes that this identity may not list.
func (g *gather) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = true
}

// pages lists until all requests in wanted are answered, or a page contains too few of their
// objects.
func (g *gather) pages(ctx context.Context, namespace string, wanted map[source.Key]*readRequest) error {
	o := metav1.ListOptions{Limit: gatherPage}
	for first := true; len(wanted) > 0 && (first || o.Continue != ""); first = false {
		list, err := g.list(namespace)(ctx, o)
		if err != nil {
			return err
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		if hits := g.deliver(wanted, objects, m.GetResourceVersion()); hits*gatherShare < len(objects) {
			return nil
		}
		o.Continue = m.GetContinue()
	}
	return nil
}

// deliver answers the requests for the objects, and removes them from wanted.
func (g *gather) deliver(wanted map[source.Key]*readRequest, objects []runtime.Object, version string) (hits int) {
	answers := map[*readRequest]answer{}
	for _, obj := range objects {
		m, ok := obj.(metav1.Object)
		if !ok {
			continue
		}
		key := source.Key{Kind: g.kind, Namespace: m.GetNamespace(), Name: m.GetName()}
		if a := wanted[key]; a != nil {
			answers[a] = answer{obj: obj, version: version}
			delete(wanted, key)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// An answered request that is no longer waiting is being read alone, or its caller gave up.
	g.waiting = slices.DeleteFunc(g.waiting, func(a *readRequest) bool {
		r, found := answers[a]
		if found {
			a.answer <- r
		}
		return found
	})
	return len(answers)
}

// get reads one object.
func (p *Provider) get(ctx context.Context, key source.Key) (runtime.Object, error) {
	g := p.gathers[key.Kind]
	if g == nil {
		return p.kinds[key.Kind].get(ctx, key)
	}
	obj, _, err := g.read(ctx, key, func(ctx context.Context) (runtime.Object, string, error) {
		obj, err := p.kinds[key.Kind].get(ctx, key)
		return obj, "", err
	})
	return obj, err
}

// lister returns a function that lists one object.
func (p *Provider) lister(key source.Key) listFunc {
	one, g := p.kinds[key.Kind].lister(key.Namespace), p.gathers[key.Kind]
	if g == nil {
		return one
	}
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		obj, version, err := g.read(ctx, key, func(ctx context.Context) (runtime.Object, string, error) {
			list, err := one(ctx, o)
			if err != nil {
				if apierrors.IsForbidden(err) {
					g.refuse()
				}
				return nil, "", err
			}
			m, err := meta.ListAccessor(list)
			if err != nil {
				return nil, "", err
			}
			objects, err := meta.ExtractList(list)
			if err != nil || len(objects) == 0 {
				return nil, m.GetResourceVersion(), err
			}
			return objects[0], m.GetResourceVersion(), nil
		})
		if err != nil {
			return nil, err
		}
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		if obj != nil {
			list.Items = []runtime.RawExtension{{Object: obj}}
		}
		return list, nil
	}
}
