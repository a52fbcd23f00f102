package source

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
)

// Remote is what a provider that has to be asked knows of objects that it does
// not tell. Told objects are in [Update.Put]; those in Update.Delete are known
// not to be there.
type Remote struct {
	// Absent are objects that are known not to be there.
	Absent []Key
	// Unread says, for people, why it is not known whether there is an object.
	// What was known of it before stays.
	Unread map[Key]string
	// Forget are objects that no pod needs any more, so that they are not known.
	Forget []Key
}

// notAsked is why nothing is known of an object at first.
const notAsked = "not read from the API server yet"

// remote is what is known of what the remote provider has. It is used under the
// catalog's lock, but for tell.
type remote struct {
	name   string
	demand func(pod Key, objects []Key)
	// absent are the objects that are known not to be there.
	absent map[Key]bool
	// why says why others are not known.
	why map[Key]string
	// asked is what each pod needs; changed are the pods whose needs changed.
	asked   map[Key][]Key
	changed []Key
}

func newRemote(name string, demand func(pod Key, objects []Key)) remote {
	return remote{name: name, demand: demand, absent: map[Key]bool{}, why: map[Key]string{}, asked: map[Key][]Key{}}
}

// has reports whether the first of the objects' providers is the remote one.
func (r *remote) has(providers byProvider) bool {
	return r.name != "" && len(providers) == 1 && providers[0].provider == r.name
}

// learn takes over what the provider says it knows, and returns the keys of
// which other things are known now.
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
	for _, key := range slices.Concat(u.Delete, u.Remote.Absent) {
		note(key, func() { r.absent[key] = true; delete(r.why, key) })
	}
	for _, key := range u.Remote.Forget {
		note(key, func() { delete(r.absent, key); delete(r.why, key) })
	}
	for key, why := range u.Remote.Unread {
		note(key, func() { r.why[key] = why })
	}
	return changed
}

// delivered notes that the provider delivered the object, or why the catalog refused it.
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

// unread says why it is not known whether there is an object; "" where it is.
func (r *remote) unread(key Key) string {
	if r.absent[key] {
		return ""
	}
	if why := r.why[key]; why != "" {
		return why
	}
	return notAsked
}

// demands notes what a pod needs. Lists are no objects and cannot be asked for.
func (r *remote) demands(pod Key, used []Key) {
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

// sendDemands passes the pods' new needs to the provider. It is called during an update, and
// outside of the catalog's lock: no other provider changes anything then.
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
