package source

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// minShared is the number of objects to check, or pods to resolve, from which all processors share
// the work. An `apply` has few, a start has thousands and waits for them. On one processor, this
// work and the decoding of the journal's records make a restart with 1,000 pods take 1.3 times as
// long as on two (docs/performance.md).
const minShared = 64

// fewAtOnce is how many items a goroutine takes at a time, so that a busy processor takes fewer in
// all.
const fewAtOnce = 16

// each calls f with 0 to n-1, from several goroutines if n is at least minShared.
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

// checked is an object's key and the faults that [resolve.Check] found in the object.
type checked struct {
	key    Key
	err    error // why the object has no key
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

// pod is the last result of resolving a pod.
type pod struct {
	uid state.PodUID
	// used are the keys that resolving it looked up, whether or not there was an object.
	used []Key
	want state.PodWant
	// remote means that the pod's provider delivers only objects that it was asked for.
	remote bool
}

// resolve resolves the pods and sends the changes to the sink. A pod's wants depend on another pod
// only if both have the same UID, so resolve sends nothing before all pods are resolved.
func (c *Catalog) resolve(pods []Key) {
	uids := map[state.PodUID]bool{}
	c.mu.Lock()
	resolved := make([]*pod, len(pods))
	each(len(pods), func(i int) { resolved[i] = c.resolvePod(pods[i]) })
	for i, key := range pods {
		for _, uid := range c.replace(key, resolved[i]) {
			uids[uid] = true
		}
	}
	changes := c.publish(uids)
	c.mu.Unlock()
	c.send(changes)
}

// send passes the changes to the sink, and the pods' needs to the remote provider.
func (c *Catalog) send(changes []change) {
	for _, n := range changes {
		if n.gone {
			c.sink.RemovePod(n.want.Pod.UID)
		} else {
			c.sink.SetPod(n.want)
		}
	}
	c.remote.sendDemands()
}

// resolvePod resolves the pod with the current objects; it returns nil if there is no such pod. It
// changes nothing, so several calls may run at once while the catalog's lock is held.
func (c *Catalog) resolvePod(key Key) *pod {
	object, ok := c.holder(key).(*corev1.Pod)
	if !ok {
		return nil
	}
	v := view{catalog: c, provider: c.effective(key), seen: map[Key]bool{}, remote: c.remote.owns(c.under(key))}
	p := &pod{want: resolve.Pod(object, &v, c.config), remote: v.remote}
	p.uid, p.used = p.want.Pod.UID, slices.Collect(maps.Keys(v.seen))
	return p
}

// replace stores the pod's new result, nil if the pod is gone, and returns the UIDs that the pod
// had and has.
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
		c.remote.setDemand(key, nil)
		return uids
	}
	c.pods[key] = p
	for _, used := range p.used {
		addTo(c.users, used, key)
	}
	addTo(c.uids, p.uid, key)
	if p.remote {
		c.remote.setDemand(key, p.used)
	}
	return append(uids, p.uid)
}
