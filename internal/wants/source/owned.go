package source

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// Ownership gives keys to a provider. An object of another provider under such a key has no effect: neither do the
// owner's pods see it, nor do other pods see the owner's object in its place. A cluster's objects are an exception,
// because nothing on the node can refuse them: they have their effect, and only the owner's pods see the owner's object
// instead.
type Ownership struct {
	Provider string
	// Whose names the owner for people: "the volume db of Docker or podman".
	Whose string
}

// Own makes the provider the owner of the keys. If free is set and another provider of this node has an object under
// one of them, Own changes nothing, and returns that key and that provider.
func (c *Catalog) Own(o Ownership, keys []Key, free bool) (taken Key, by string) {
	c.update.Lock()
	c.mu.Lock()
	for _, key := range keys {
		if by = c.contender(o.Provider, key); free && by != "" {
			c.mu.Unlock()
			c.update.Unlock()
			return key, by
		}
	}
	c.reown(keys, func(key Key) { c.owned[key] = o })
	c.mu.Unlock()
	c.resolve(c.affectedPods(keys))
	c.update.Unlock()
	c.announce(keys)
	return Key{}, ""
}

// Disown ends the ownership of the keys.
func (c *Catalog) Disown(keys []Key) {
	c.update.Lock()
	c.mu.Lock()
	c.reown(keys, func(key Key) { delete(c.owned, key) })
	c.mu.Unlock()
	c.resolve(c.affectedPods(keys))
	c.update.Unlock()
	c.announce(keys)
}

// reown changes the owners of keys by set, and what is indexed by their effective objects.
func (c *Catalog) reown(keys []Key, set func(Key)) {
	for _, key := range keys {
		was := c.holder(key)
		set(key)
		if is := c.holder(key); was != is {
			c.index.replace(key, was, is)
		}
	}
}

// Has reports whether the provider has an object under the key, in effect or not.
func (c *Catalog) Has(provider string, key Key) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.under(key).of(provider) != nil
}

// contender returns a provider of this node, other than owner, that has an object under the key; "" if there is none.
func (c *Catalog) contender(owner string, key Key) string {
	for _, t := range c.under(key) {
		if t.provider != owner && (t.provider != c.remote.name || c.remote.name == "") {
			return t.provider
		}
	}
	return ""
}

// visible returns the object under the key that the pods of a provider see, or nil.
func (c *Catalog) visible(provider string, key Key) runtime.Object {
	o, owned := c.owned[key]
	switch {
	case !owned:
	case provider == o.Provider:
		return c.under(key).of(provider)
	case c.hidden(provider, key) != "":
		return nil
	}
	return c.holder(key)
}

// hidden says why the pods of a provider see no object under the key although there is one; "" if they do.
func (c *Catalog) hidden(provider string, key Key) string {
	o, owned := c.owned[key]
	if !owned || provider == o.Provider || c.effective(key) == c.remote.name && c.remote.name != "" {
		return ""
	}
	if other := c.contender(o.Provider, key); other != "" {
		return fmt.Sprintf("it belongs to %s, and the object of that name from source %s has no effect: give that another "+
			"name, or delete it to use the volume's", o.Whose, other)
	}
	return ""
}

// beside says, of an object that is not in effect, which is.
func (c *Catalog) beside(key Key) string {
	o, owned := c.owned[key]
	first := c.effective(key)
	switch {
	case owned && first == c.remote.name && first != "":
		return fmt.Sprintf("source %s has it too, and its object is used, but by %s", first, o.Whose)
	case owned:
		return fmt.Sprintf("it belongs to %s, and this object has no effect: give it another name", o.Whose)
	}
	return "source " + first + " has it too, and its object is used"
}
