package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// Hold is the hold of a volume that csi-volmgr makes on the name of its PersistentVolume. It keeps every
// source's PersistentVolume of the name out of effect.
type Hold struct {
	// Claim ("namespace/name") has the volume.
	Claim string
	// Volume is nil while the volume is being made or deleted.
	Volume *corev1.PersistentVolume
	// Yields means that a version made the volume that let a PersistentVolume of a source take its place.
	// One that differs goes on to.
	Yields bool
}

// Contender is a source's PersistentVolume of a held name.
type Contender struct {
	Name     string
	Provider string
	Volume   *corev1.PersistentVolume
	// Differs says what it says otherwise than the held volume; "" if it is the same.
	Differs string
	// Stands means that it is in effect, in place of the held volume.
	Stands bool
}

// differs says what a source's PersistentVolume says otherwise than the held volume, or "".
func (h Hold) differs(pv *corev1.PersistentVolume) string {
	if h.Volume == nil {
		return fmt.Sprintf("metadata.name: found %s, want another name, since csi-volmgr is making or deleting the volume "+
			"of this name, of claim %s", pv.Name, h.Claim)
	}
	faults := resolve.CheckMade(h.Volume, pv)
	if len(faults) == 0 {
		return ""
	}
	return fmt.Sprintf("%s, since csi-volmgr made the volume of this name, for claim %s; give another volume another name",
		faults[0], h.Claim)
}

// holds are the names that the provider of made volumes holds. The catalog's lock guards them.
type holds struct {
	// provider is "" if no provider makes volumes.
	provider, remote string
	// names is nil until the provider has told its names. Until then no source's PersistentVolume is in
	// effect: it might stand for a made volume.
	names map[string]Hold
	known chan struct{} // closed once names are known
}

// contends reports whether the provider's PersistentVolumes may contend with made ones. A cluster's have
// no names of this node's.
func (h *holds) contends(provider string) bool { return provider != h.provider && provider != h.remote }

// allowed returns those of a key's objects that may be in effect.
func (h *holds) allowed(key Key, all byProvider) byProvider {
	if h.provider == "" || key.Kind != resolve.KindVolume || len(all) == 1 && !h.contends(all[0].provider) {
		return all
	}
	hold, held := h.names[key.Name]
	if h.names != nil && !held || hold.Yields && slices.ContainsFunc(all, func(p provided) bool {
		return h.contends(p.provider) && hold.differs(p.object.(*corev1.PersistentVolume)) != ""
	}) {
		return all
	}
	var rest byProvider
	for _, p := range all {
		if !h.contends(p.provider) {
			rest = append(rest, p)
		}
	}
	return rest
}

// Hold sets the names of PersistentVolumes that [Config.Made] holds.
func (c *Catalog) Hold(names map[string]Hold) {
	c.update.Lock()
	c.mu.Lock()
	first := c.holds.names == nil
	was := map[Key]runtime.Object{}
	for key, all := range c.objects[resolve.KindVolume] {
		if first || c.holds.names[key.Name] != names[key.Name] {
			was[key] = c.inEffect(key, all)
		}
	}
	if c.holds.names = maps.Clone(names); names == nil {
		c.holds.names = map[string]Hold{}
	}
	if first {
		close(c.holds.known)
	}
	for key, before := range was {
		if after := c.holder(key); before != after {
			c.index.replace(key, before, after)
		}
	}
	changed := slices.SortedFunc(maps.Keys(was), Key.Compare)
	c.mu.Unlock()
	c.resolve(c.affectedPods(changed))
	c.update.Unlock()
	c.announce(changed)
}

// Held returns a channel that is closed once Hold was called.
func (c *Catalog) Held() <-chan struct{} { return c.holds.known }

// CheckHold returns why a source may not have the PersistentVolume, or "". One that a source has already may
// stay as it is.
func (c *Catalog) CheckHold(pv *corev1.PersistentVolume) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	hold, held := c.holds.names[pv.Name]
	if !held {
		return ""
	}
	same := func(p provided) bool { return equality.Semantic.DeepEqual(p.object, pv) }
	if slices.ContainsFunc(c.under(Key{Kind: resolve.KindVolume, Name: pv.Name}), same) {
		return ""
	}
	return hold.differs(pv)
}

// Follows reports whether the held volume of pv's name has the reclaim policy that the source which takes
// precedence says, or need not have it.
func (c *Catalog) Follows(pv *corev1.PersistentVolume) bool {
	first, _ := c.Listed(pv.Name)
	c.mu.RLock()
	defer c.mu.RUnlock()
	is := c.holds.names[pv.Name].Volume
	if first == nil || is == nil || len(resolve.CheckMade(is, first)) > 0 {
		return true
	}
	policy := first.Spec.PersistentVolumeReclaimPolicy
	return policy == "" || policy == is.Spec.PersistentVolumeReclaimPolicy
}

// Listed returns the PersistentVolume that a source other than [Config.Made] and [Config.Remote] has, whether
// or not it is in effect, and the source.
func (c *Catalog) Listed(name string) (pv *corev1.PersistentVolume, provider string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := slices.DeleteFunc(slices.Clone(c.under(Key{Kind: resolve.KindVolume, Name: name})), func(p provided) bool {
		return !c.holds.contends(p.provider)
	})
	if len(all) == 0 {
		return nil, ""
	}
	provider = c.best(all)
	pv, _ = all.of(provider).(*corev1.PersistentVolume)
	return pv, provider
}

// Contenders lists the PersistentVolumes of sources that have a held name, by name and then by precedence.
func (c *Catalog) Contenders() (out []Contender) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for key, all := range c.objects[resolve.KindVolume] {
		hold, held := c.holds.names[key.Name]
		if !held {
			continue
		}
		for _, p := range all {
			if pv, ok := p.object.(*corev1.PersistentVolume); ok && c.holds.contends(p.provider) {
				out = append(out, Contender{
					Name: key.Name, Provider: p.provider, Volume: pv, Differs: hold.differs(pv),
					Stands: c.first(key, all) == p.provider,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b Contender) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), c.compareProviders(a.Provider, b.Provider))
	})
	return out
}

// contended lists the contenders that differ.
func (c *Catalog) contended() (problems []Problem) {
	for _, k := range c.Contenders() {
		if k.Differs == "" {
			continue
		}
		p := Problem{Provider: k.Provider, Where: Key{Kind: resolve.KindVolume, Name: k.Name}.String(), Text: k.Differs}
		if p.Object = true; k.Stands {
			p.Text = "it stands in the place of another volume, and the claim's pods get it: " + k.Differs +
				" (an earlier version let it). Look at both volumes, then end it with csi-volmgr delete -f FILE, or where its " +
				"manifest is: the claim gets its own volume"
		}
		problems = append(problems, p)
	}
	return problems
}
