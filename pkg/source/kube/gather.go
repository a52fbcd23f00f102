package kube

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

const (
	// gatherAt is how many objects of one namespace have to be waited for before
	// they are listed: a list of so many is cheaper for everybody than a get each.
	gatherAt = 64
	// gatherPage is how many objects one answer may have, and gatherShare how many
	// of those of a page there may be for one that a pod waits for. A large
	// cluster has few that are this node's, so there a list ends with its first page.
	gatherPage  = 500
	gatherShare = 10
	// gatherReads is how many objects are read one by one at a time. The others are
	// not among the client's requests yet, so that a list need not wait for them.
	gatherReads = 16
)

// gather reads the objects of one kind; there may be as many as pods
// have claims: one by one, and where very many are waited for by lists, if the
// identity may.
type gather struct {
	kind string
	list func(namespace string) listFunc

	mu      sync.Mutex // guards what follows
	waiting []*asked   // in order of arrival
	reading int
	// listing: a list is under way. It is for those who asked before it began.
	listing bool
	// refused: this identity may not list.
	refused bool
}

// asked is one object that a pod waits for.
type asked struct {
	ctx context.Context // of who waits
	key source.Key
	// one reads it alone.
	one    func(context.Context) (runtime.Object, string, error)
	alone  bool // a list did not have it, or was not worth it
	answer chan answer
}

type answer struct {
	obj     runtime.Object
	version string // of the list that it is from, or its own
	err     error
}

func newGather(kind string, list func(namespace string) listFunc) *gather {
	return &gather{kind: kind, list: list}
}

// read returns an object as it is after the call, and the version to watch from.
func (g *gather) read(ctx context.Context, key source.Key, one func(context.Context) (runtime.Object, string,
	error),
) (runtime.Object, string, error) {
	a := &asked{ctx: ctx, key: key, one: one, answer: make(chan answer, 1)}
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
		g.waiting = slices.DeleteFunc(g.waiting, func(o *asked) bool { return o == a })
		return nil, "", context.Cause(ctx)
	}
}

// next begins what can be begun; g.mu is held.
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
				wanted := g.of(namespace)
				go g.gather(g.waiting[len(g.waiting)-1].ctx, namespace, wanted)
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

// of returns those in a namespace that wait for a list; g.mu is held.
func (g *gather) of(namespace string) map[source.Key]*asked {
	out := map[source.Key]*asked{}
	for _, a := range g.waiting {
		if a.key.Namespace == namespace && !a.alone {
			out[a.key] = a
		}
	}
	return out
}

// gather lists a namespace for those in wanted, who asked before.
func (g *gather) gather(ctx context.Context, namespace string, wanted map[source.Key]*asked) {
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

// refuse takes note that this identity may not list.
func (g *gather) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = true
}

// pages lists until all in wanted have their answer, or a page has too few of them.
func (g *gather) pages(ctx context.Context, namespace string, wanted map[source.Key]*asked) error {
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

// deliver gives the objects to those who wait for them, and takes these from wanted.
func (g *gather) deliver(wanted map[source.Key]*asked, objects []runtime.Object, version string) (hits int) {
	answers := map[*asked]answer{}
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
	g.waiting = slices.DeleteFunc(g.waiting, func(a *asked) bool { // others are being read alone, or gave up
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

// lister lists one object.
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
