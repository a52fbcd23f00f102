package source

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// change is a call to the sink.
type change struct {
	want state.PodWant
	gone bool
}

func podKey(p state.Pod) Key { return Key{Kind: resolve.KindPod, Namespace: p.Namespace, Name: p.Name} }

// holderOf decides which of the listed pods that ask for one UID has it; the zero Key means none of them.
// had is the pod that had it first. While its volumes may be mounted they stay its own, whether or not a
// source lists it. Without one it is the pod from whose name the UID follows, since every other has copied
// it, and then the first by namespace and name.
func holderOf(uid state.PodUID, had Key, listed []Key) Key {
	switch {
	case slices.Contains(listed, had):
		return had
	case had != Key{} || len(listed) == 0:
		return Key{}
	}
	if i := slices.IndexFunc(listed, func(k Key) bool { return state.PodUID(resolve.UID(k)) == uid }); i >= 0 {
		return listed[i]
	}
	return slices.MinFunc(listed, Key.Compare)
}

// had returns the pod that had the UID first, as far as that is known; the caller holds mu.
func (c *Catalog) had(uid state.PodUID) Key {
	if want, known := c.published[uid]; known {
		return podKey(want.Pod)
	}
	return c.left[uid]
}

// publish decides what the sink gets for the UIDs, and returns the calls to it; the caller holds mu. The sink
// hears that a pod is gone before it gets another one of that UID, and gets that once nothing remains of the first.
func (c *Catalog) publish(uids map[state.PodUID]bool) (changes []change) {
	for _, uid := range slices.Sorted(maps.Keys(uids)) {
		listed := slices.Collect(c.uids[uid].all())
		before, known := c.published[uid]
		holder := holderOf(uid, c.had(uid), listed)
		if known && holder == (Key{}) {
			known = false
			delete(c.published, uid)
			delete(c.recorded, uid)
			c.left[uid] = podKey(before.Pod)
			changes = append(changes, change{want: before, gone: true})
		}
		if holder == (Key{}) && !c.remains(uid) {
			delete(c.left, uid)
			delete(c.recorded, uid)
			holder = holderOf(uid, Key{}, listed)
		}
		if holder == (Key{}) {
			continue
		}
		delete(c.left, uid)
		if want := c.pods[holder].want; !known || !reflect.DeepEqual(before, want) {
			c.published[uid] = want
			changes = append(changes, change{want: want})
		}
	}
	return changes
}

// Recorded tells which pods have volumes by the records of an earlier run. Until a source lists it, or nothing
// remains of it, no other pod gets such a pod's UID.
func (c *Catalog) Recorded(pods []state.Pod) {
	c.update.Lock()
	defer c.update.Unlock()
	uids, quicker := map[state.PodUID]bool{}, []state.PodWant{}
	c.mu.Lock()
	for _, p := range pods {
		before, known := c.published[p.UID]
		if known && podKey(before.Pod) == podKey(p) {
			continue
		}
		if known { // another pod, of a source that was quicker than the records
			delete(c.published, p.UID)
			quicker = append(quicker, before)
		}
		c.left[p.UID], uids[p.UID] = podKey(p), true
	}
	changes := c.publish(uids)
	for _, before := range quicker {
		// One that another takes the place of must not be said to be gone: the volumes of its UID, which
		// are the other's, would go with it.
		if _, replaced := c.published[before.Pod.UID]; !replaced {
			changes = append(changes, change{want: before, gone: true})
		}
	}
	c.mu.Unlock()
	c.send(changes)
}

// Recheck gives UIDs to the pods that wait for them, where nothing remains of the pod before. It reports
// whether pods still wait.
func (c *Catalog) Recheck() (wait bool) {
	c.update.Lock()
	uids := map[state.PodUID]bool{}
	var got []Key
	c.mu.Lock()
	for uid := range c.left {
		waiting := slices.Collect(c.uids[uid].all())
		if c.remains(uid) {
			wait = wait || len(waiting) > 0
			continue
		}
		uids[uid] = true
		got = append(got, waiting...)
	}
	changes := c.publish(uids)
	c.mu.Unlock()
	c.send(changes)
	c.update.Unlock()
	c.announce(got)
	return wait
}

// UIDHolder returns the listed pod that has the UID, and whether there is one.
func (c *Catalog) UIDHolder(uid state.PodUID) (pod Key, found bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	want, found := c.published[uid]
	return podKey(want.Pod), found
}

// UIDTaken says that a pod asks for the UID of another one, and what would be right. That one may have copied the UID
// that follows from the pod's name.
func UIDTaken(uid state.PodUID, pod, other Key) string {
	if uid == state.PodUID(resolve.UID(pod)) {
		return fmt.Sprintf("metadata.uid: %s, which follows from the name, is what %s says and has; delete that pod, or "+
			"want another uid in metadata.uid", uid, other)
	}
	return fmt.Sprintf("metadata.uid: found %s, which %s has; want one of its own, or none: then it follows from the name",
		uid, other)
}

// uidProblems lists the pods that do not get the UID for which they ask; the caller holds mu.
func (c *Catalog) uidProblems() (out []Problem) {
	for _, key := range slices.SortedFunc(maps.Keys(c.pods), Key.Compare) {
		uid := c.pods[key].uid
		want, held := c.published[uid]
		if held && podKey(want.Pod) == key {
			continue
		}
		text := UIDTaken(uid, key, c.had(uid))
		if !held {
			text += "; no source lists that pod, and the node may have volumes of it"
		}
		out = append(out, Problem{Provider: c.effective(key), Where: key.String(), Text: text})
	}
	return out
}
