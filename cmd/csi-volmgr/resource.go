package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// resource is how to list one kind.
type resource[T any] struct {
	columns []column[T]
	list    func(context.Context) ([]T, error)
	watch   func(context.Context, func(server.Event[T]) error) error
	// key returns "namespace/name", or the name if the item has no namespace.
	key func(T) string
	// find returns the item that a user calls name; nil means the item with that key.
	find       func(items []T, name string) (T, error)
	namespaced bool
	kind       string
	// hidden reports whether a table shows the item only with -o wide or by name; nil means no item.
	hidden func(T) bool
	// hiddenNoun names the items that a table leaves out.
	hiddenNoun string
}

// show lists or watches a resource.
func show[T any](ctx context.Context, p *program, o getOptions, r resource[T]) error {
	if o.watch {
		return watchTable(ctx, p, o, r)
	}
	all, err := r.list(ctx)
	if err != nil {
		return err
	}
	items, err := r.choose(all, o)
	if err != nil {
		return err
	}
	switch {
	case structured(o.output):
		if len(o.names) == 1 {
			return p.document(items[0], o.output)
		}
		return p.document(server.List[T]{Items: items}, o.output)
	}
	shown := r.tableItems(items, o)
	if len(shown) == 0 {
		err = writeAll(p.stderr, r.nothing(len(all), o))
	} else {
		err = writeTable(p.stdout, r.columns, shown, p.view(o))
	}
	if n := len(items) - len(shown); err == nil && n > 0 {
		err = writeAll(p.stderr, fmt.Sprintf("%d %s are shown with -o wide.\n", n, r.hiddenNoun))
	}
	return err
}

// tableItems returns the items that a table does not leave out.
func (r resource[T]) tableItems(items []T, o getOptions) []T {
	var shown []T
	for _, item := range items {
		if !r.leftOut(item, o) {
			shown = append(shown, item)
		}
	}
	return shown
}

// leftOut reports whether a table leaves an item out.
func (r resource[T]) leftOut(item T, o getOptions) bool {
	return r.hidden != nil && len(o.names) == 0 && o.output != formWide && !structured(o.output) && r.hidden(item)
}

func (p *program) view(o getOptions) view {
	v := p.look(o.output)
	v.namespaces = o.all
	return v
}

// choose returns the items that were asked for.
func (r resource[T]) choose(all []T, o getOptions) ([]T, error) {
	items := []T{}
	if len(o.names) == 0 {
		for _, item := range all {
			if r.inNamespace(item, o) {
				items = append(items, item)
			}
		}
		return items, nil
	}
	for _, name := range o.names {
		if r.namespaced {
			name = o.namespace + "/" + name
		}
		item, err := r.named(all, name)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (r resource[T]) inNamespace(item T, o getOptions) bool {
	if o.labelled != nil && !o.labelled[r.key(item)] {
		return false
	}
	return !r.namespaced || o.all || strings.HasPrefix(r.key(item), o.namespace+"/")
}

func (r resource[T]) named(all []T, name string) (T, error) {
	if r.find != nil {
		return r.find(all, name)
	}
	for _, item := range all {
		if r.key(item) == name {
			return item, nil
		}
	}
	var zero T
	if ns, bare, ok := strings.Cut(name, "/"); ok && r.namespaced {
		return zero, server.NotKnown(r.kind, ns, bare, namespacesOf(all, r.key, bare))
	}
	return zero, fmt.Errorf("%w: %s %s is not known here", server.ErrNotFound, r.kind, name)
}

// namespacesOf returns the namespaces of the items that have the name.
func namespacesOf[T any](all []T, key func(T) string, name string) []string {
	keys := make([]string, len(all))
	for i, item := range all {
		keys[i] = key(item)
	}
	return server.NamespacesOf(slices.Values(keys), name)
}

// nothing returns the text for an empty list, and says where there are items.
func (r resource[T]) nothing(elsewhere int, o getOptions) string {
	switch {
	case !r.namespaced || o.all:
		return fmt.Sprintf("No %s found.\n", r.kind)
	case elsewhere == 0:
		return fmt.Sprintf("No %s found in namespace %s.\n", r.kind, o.namespace)
	default:
		return fmt.Sprintf("No %s found in namespace %s; %d elsewhere, shown with -A.\n", r.kind, o.namespace, elsewhere)
	}
}
