package source

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// Remote is what a provider that must be asked for objects knows about objects that it does not
// deliver. It delivers objects in [Update.Put]; objects in Update.Delete are known to be absent.
type Remote struct {
	// Absent lists objects that are known not to exist.
	Absent []Key
	// Unread says, for people, why it is unknown whether an object exists. Earlier knowledge about
	// the object stays.
	Unread map[Key]string
	// Forget lists objects that no pod needs any longer. What was known about them is dropped.
	Forget []Key
}

// notAsked is the reason for an object that the provider has not answered for yet.
const notAsked = "not read from the API server yet"

// remote is what the catalog knows about the remote provider's objects. Except for sendDemands, its
// methods need the catalog's lock.
type remote struct {
	name   string
	demand func(pod Key, objects []Key)
	// absent holds the objects that are known not to exist.
	absent map[Key]bool
	// why holds the reason why another object is unknown.
	why map[Key]string
	// asked holds the keys that each pod needs; changed lists the pods whose keys changed.
	asked   map[Key][]Key
	changed []Key
}

func newRemote(name string, demand func(pod Key, objects []Key)) remote {
	return remote{name: name, demand: demand, absent: map[Key]bool{}, why: map[Key]string{}, asked: map[Key][]Key{}}
}

// owns reports whether the remote provider is the only one of the object's providers.
func (r *remote) owns(providers byProvider) bool {
	return r.name != "" && len(providers) == 1 && providers[0].provider == r.name
}

// learn stores what the provider knows and returns the keys whose state changed.
func (r *remote) learn(provider string, u Update) (changed []Key) {
	if provider != r.name || r.name == "" {
		return nil
	}
	was := func(key Key) [2]string {
		if r.absent[key] {
			return [2]string{"absent", ""}
		}
		return [2]string{"", r.why[key]}
	}
	note := func(key Key, learn func()) {
		before := was(key)
		learn()
		if was(key) != before {
			changed = append(changed, key)
		}
	}
	forget := func(key Key) { delete(r.absent, key); delete(r.why, key) }
	for _, key := range slices.Concat(u.Delete, u.Remote.Absent) {
		note(key, func() {
			if forget(key); namedByPods(key.Kind) {
				r.absent[key] = true
			}
		})
	}
	for _, key := range u.Remote.Forget {
		note(key, func() { forget(key) })
	}
	for key, why := range u.Remote.Unread {
		note(key, func() { r.why[key] = why })
	}
	return changed
}

// namedByPods reports whether pods name objects of the kind, so that it matters whether one is
// absent. The others come and go unasked, and the provider does not forget each of them.
func namedByPods(kind string) bool { return kind != resolve.KindPod && kind != resolve.KindTrustBundle }

// delivered notes that the provider delivered the object; refused is the catalog's reason to reject
// it, or "".
func (r *remote) delivered(provider string, key Key, refused string) (changed bool) {
	if provider != r.name || r.name == "" {
		return false
	}
	changed = r.absent[key] || r.why[key] != refused
	delete(r.absent, key)
	delete(r.why, key)
	if refused != "" {
		r.why[key] = refused
	}
	return changed
}

// unread returns why it is unknown whether the object exists, or "" if that is known.
func (r *remote) unread(key Key) string {
	if r.absent[key] {
		return ""
	}
	if why := r.why[key]; why != "" {
		return why
	}
	return notAsked
}

// setDemand sets the keys that a pod needs. It omits lists, since a provider cannot be asked for
// those.
func (r *remote) setDemand(pod Key, used []Key) {
	var keys []Key
	for _, key := range slices.SortedFunc(slices.Values(used), Key.Compare) {
		if key.Kind != volumesOf && key.Kind != claimsOf && key.Kind != resolve.KindAttachmentsOf {
			keys = append(keys, key)
		}
	}
	before, had := r.asked[pod]
	if slices.Equal(before, keys) && (had || keys == nil) {
		return
	}
	if keys == nil {
		delete(r.asked, pod)
	} else {
		r.asked[pod] = keys
	}
	r.changed = append(r.changed, pod)
}

// sendDemands passes the pods' changed needs to the provider. It runs during an update but without
// the catalog's lock, and no other update can run then.
func (r *remote) sendDemands() {
	changed := r.changed
	r.changed = nil
	if r.demand == nil {
		return
	}
	for _, pod := range changed {
		r.demand(pod, r.asked[pod])
	}
}
