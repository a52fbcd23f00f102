package source

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// Of the objects that several providers have under a key, one is in effect: its owner's ([Ownership]), or
// else the first in the ranking of those that no hold keeps out ([Hold]).

// holder returns the key's effective object, or nil.
func (c *Catalog) holder(key Key) runtime.Object { return c.inEffect(key, c.under(key)) }

// effective returns the provider whose object under the key is the effective one, or "".
func (c *Catalog) effective(key Key) string { return c.first(key, c.under(key)) }

// inEffect returns which of the key's objects is the effective one, or nil.
func (c *Catalog) inEffect(key Key, all byProvider) runtime.Object {
	if _, owned := c.owned[key]; owned {
		return all.of(c.first(key, all))
	}
	switch all = c.holds.allowed(key, all); len(all) {
	case 0:
		return nil
	case 1:
		return all[0].object
	}
	return all.of(c.best(all))
}

// first returns the provider whose object is the effective one: the key's owner, if it has one, or else the first in
// the ranking; "" if there is none.
func (c *Catalog) first(key Key, all byProvider) string {
	if o, owned := c.owned[key]; owned {
		switch {
		case c.remote.name != "" && all.of(c.remote.name) != nil:
			return c.remote.name
		case all.of(o.Provider) == nil:
			return ""
		}
		return o.Provider
	}
	if all = c.holds.allowed(key, all); len(all) > 0 {
		return c.best(all)
	}
	return ""
}

// best returns the provider that takes precedence.
func (c *Catalog) best(all byProvider) string {
	return slices.MinFunc(all, func(a, b provided) int { return c.compareProviders(a.provider, b.provider) }).provider
}

// compareProviders sorts the provider that takes precedence first.
func (c *Catalog) compareProviders(a, b string) int {
	rank := func(p string) int {
		if i := slices.Index(c.ranking, p); i >= 0 {
			return i
		}
		return len(c.ranking)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}
