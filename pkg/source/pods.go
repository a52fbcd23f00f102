package source

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// minShared is from how many on objects are checked, or pods resolved, on all
// processors: those of an `apply` are few, those of a start thousands, and a
// start waits for them. With this and the journal's records on one processor a restart
// with 1,000 pods takes 1.3 times as long on two (docs/performance.md).
const minShared = 64

// fewAtOnce is how many of them a goroutine takes at a time: a processor that has
// other work to do takes fewer in all.
const fewAtOnce = 16

// each calls f for each number below n, from several goroutines where there are many.
func each(n int, f func(i int)) {
	workers := runtime.GOMAXPROCS(0)
	if n < minShared || workers == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var all sync.WaitGroup
	var next atomic.Int64
	for range workers {
		all.Go(func() {
			for begin := 0; begin < n; {
				begin = int(next.Add(fewAtOnce)) - fewAtOnce
				for i := begin; i < min(begin+fewAtOnce, n); i++ {
					f(i)
				}
			}
		})
	}
	all.Wait()
}

// checked is what an object is stored under, and what is wrong with it by itself.
type checked struct {
	key    Key
	err    error // it has no key
	faults []resolve.Fault
}

func checkAll(u Update) []checked {
	all := make([]checked, len(u.Put))
	each(len(u.Put), func(i int) {
		k := &all[i]
		if k.key, k.err = resolve.KeyOf(u.Put[i]); k.err == nil && !u.Checked {
			k.faults = resolve.Check(u.Put[i])
		}
	})
	return all
}

// pod is a pod as it was resolved last.
type pod struct {
	uid state.PodUID
	// used are the keys that its resolving looked up, found or not.
	used []Key
	want state.PodWant
	// remote: it is of the provider that has to be asked for objects.
	remote bool
}

// resolve resolves the pods and tells the sink what is new. What one of them wants
// says nothing of another, but that two have one UID: so nothing is told before
// all are resolved.
func (c *Catalog) resolve(pods []Key) {
	uids := map[state.PodUID]bool{}
	c.mu.Lock()
	resolved := make([]*pod, len(pods))
	each(len(pods), func(i int) { resolved[i] = c.resolved(pods[i]) })
	for i, key := range pods {
		for _, uid := range c.replace(key, resolved[i]) {
			uids[uid] = true
		}
	}
	type podChange struct {
		want state.PodWant
		gone bool
	}
	var changes []podChange
	for _, uid := range slices.Sorted(maps.Keys(uids)) {
		want, ok := c.want(uid)
		before, known := c.published[uid]
		switch {
		case !ok && known:
			delete(c.published, uid)
			changes = append(changes, podChange{want: before, gone: true})
		case ok && (!known || !reflect.DeepEqual(before, want)):
			c.published[uid] = want
			changes = append(changes, podChange{want: want})
		}
	}
	c.mu.Unlock()
	for _, n := range changes {
		if n.gone {
			c.sink.RemovePod(n.want.Pod.UID)
		} else {
			c.sink.SetPod(n.want)
		}
	}
	c.remote.sendDemands()
}

// resolved returns what becomes of the pod with the objects that there are, nil
// where it is not there. It changes nothing: several may run at once, under the
// catalog's lock.
func (c *Catalog) resolved(key Key) *pod {
	object, ok := c.holder(key).(*corev1.Pod)
	if !ok {
		return nil
	}
	v := view{catalog: c, seen: map[Key]bool{}, remote: c.remote.has(c.under(key))}
	p := &pod{want: resolve.Pod(object, &v, c.config), remote: v.remote}
	p.uid, p.used = p.want.Pod.UID, slices.Collect(maps.Keys(v.seen))
	return p
}

// replace takes in what became of a pod, nil for one that is gone, and returns
// the UIDs that it had and has.
func (c *Catalog) replace(key Key, p *pod) []state.PodUID {
	var uids []state.PodUID
	if old := c.pods[key]; old != nil {
		uids = append(uids, old.uid)
		for _, used := range old.used {
			removeFrom(c.users, used, key)
		}
		removeFrom(c.uids, old.uid, key)
		delete(c.pods, key)
	}
	if p == nil {
		c.remote.demands(key, nil)
		return uids
	}
	c.pods[key] = p
	for _, used := range p.used {
		addTo(c.users, used, key)
	}
	addTo(c.uids, p.uid, key)
	if p.remote {
		c.remote.demands(key, p.used)
	}
	return append(uids, p.uid)
}

// want returns what the sink gets for the UID, false for nothing.
//
// Where several pods have it, which is a mistake that no order of arrival can
// resolve, all volumes of all of them are a problem: so nothing is made, and
// nothing that one of them has is taken away.
func (c *Catalog) want(uid state.PodUID) (state.PodWant, bool) {
	keys := slices.SortedFunc(c.uids[uid].all(), Key.Compare)
	if len(keys) == 0 {
		return state.PodWant{}, false
	}
	want := c.pods[keys[0]].want
	if len(keys) == 1 {
		return want, true
	}
	problem := fmt.Sprintf("%s and %s: metadata.uid: both have %s; want another one for one of them", keys[0], keys[1],
		uid)
	names := map[string]bool{}
	for _, key := range keys {
		for _, v := range c.pods[key].want.Volumes {
			for _, name := range v.Names {
				names[name] = true
			}
		}
	}
	want.Stopped, want.Volumes = false, nil
	for _, name := range slices.Sorted(maps.Keys(names)) {
		want.Volumes = append(want.Volumes, state.VolumeWant{Names: []string{name}, Problem: problem})
	}
	return want, true
}
