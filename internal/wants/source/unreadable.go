package source

import (
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// unreadable is an object that a provider has and cannot read.
type unreadable struct{ provider, why string }

// noteUnreadable stores which objects the provider cannot read, and that it can read, or no longer has, those
// that it delivers or deletes. It returns the keys whose state changed. The caller holds the lock.
func (c *Catalog) noteUnreadable(provider string, u Update, delivered []checked) (changed []Key) {
	for key, why := range u.Unreadable {
		c.unreadable[key] = unreadable{provider, why}
		changed = append(changed, key)
	}
	if len(c.unreadable) == 0 {
		return changed
	}
	known := slices.Clone(u.Delete)
	for _, d := range delivered {
		known = append(known, d.key)
	}
	for _, key := range known {
		if c.unreadable[key].provider == provider {
			delete(c.unreadable, key)
			changed = append(changed, key)
		}
	}
	return changed
}

// Unread returns why the object may exist although Get returns nil: a provider has an object that it cannot
// read, with this key or with one that cannot be read either. It returns "" otherwise.
func (c *Catalog) Unread(key Key) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, why := c.unread(key)
	return why
}

// unread is Unread for callers that hold the lock. It also returns the key of the object that cannot be read.
func (c *Catalog) unread(key Key) (hidden Key, why string) {
	if u, ok := c.unreadable[key]; ok {
		return key, u.why
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.unreadable), Key.Compare) {
		nameless := k.Kind == key.Kind && key.Namespace != "" && k.Namespace == ""
		listed := k.Kind == resolve.KindTrustBundle && key.Kind == resolve.KindTrustBundles
		if nameless || listed {
			return k, k.String() + ": " + c.unreadable[k].why
		}
	}
	return Key{}, ""
}

// Unreadable lists the objects of the kinds that their providers cannot read, sorted.
func (c *Catalog) Unreadable(kinds ...string) []Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []Key
	for key := range c.unreadable {
		if slices.Contains(kinds, key.Kind) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}
