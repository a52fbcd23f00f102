package server

import (
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// podList is a list of all pods by name that all wait requests share. The changes of
// the feed update it and wake only the requests for the changed pods.
type podList struct {
	follow func() PodFeed

	mu      sync.Mutex // guards the fields below
	waiting int
	feed    PodFeed // nil if no request waits
	pods    map[state.PodUID]manager.PodStatus
	byName  map[listedName]*namedPods
	stop    chan struct{} // ends the reader of the feed
}

type listedName struct{ ns, name string }

// namedPods are the pods with one name.
type namedPods struct {
	waiting int // requests
	uids    map[state.PodUID]struct{}
	changed chan struct{} // closed when one may have changed; nil until a request needs it
}

// join adds a request that waits for the pods with a name, and leave removes it. The list
// exists only while a request waits.
func (l *podList) join(ns, name string) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting++; l.waiting == 1 {
		l.feed, l.stop = l.follow(), make(chan struct{})
		l.pods, l.byName = map[state.PodUID]manager.PodStatus{}, map[listedName]*namedPods{}
		go l.run(l.stop)
	}
	pod := state.Pod{Namespace: ns, Name: name}
	l.of(pod).waiting++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.of(pod).waiting--
		l.dropUnused(pod)
		if l.waiting--; l.waiting > 0 {
			return
		}
		close(l.stop)
		l.feed.Close()
		l.feed, l.pods, l.byName = nil, nil, nil
	}
}

// run applies the feed's changes until stop is closed.
func (l *podList) run(stop <-chan struct{}) {
	for {
		l.mu.Lock()
		select {
		case <-stop:
			l.mu.Unlock()
			return
		default:
		}
		l.take()
		changed := l.feed.Changed()
		l.mu.Unlock()
		select {
		case <-changed:
		case <-stop:
			return
		}
	}
}

// take applies the feed's pending changes; l.mu is held.
func (l *podList) take() {
	changed, gone := l.feed.Take()
	for _, p := range gone {
		delete(l.pods, p.UID)
		n := l.of(p)
		delete(n.uids, p.UID)
		n.notify()
		l.dropUnused(p)
	}
	for _, p := range changed {
		l.pods[p.Pod.UID] = p
		n := l.of(p.Pod)
		n.uids[p.Pod.UID] = struct{}{}
		n.notify()
	}
}

func (l *podList) of(p state.Pod) *namedPods {
	key := listedName{p.Namespace, p.Name}
	n := l.byName[key]
	if n == nil {
		n = &namedPods{uids: map[state.PodUID]struct{}{}}
		l.byName[key] = n
	}
	return n
}

// dropUnused drops the name of p if no pod has it and no request waits for it. l.mu is held.
func (l *podList) dropUnused(p state.Pod) {
	if n := l.of(p); n.waiting == 0 && len(n.uids) == 0 {
		delete(l.byName, listedName{p.Namespace, p.Name})
	}
}

func (n *namedPods) notify() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// named returns the current pods of a name, which the caller must not change, and a
// channel that is closed when one may have changed. The caller must have called join for the name.
func (l *podList) named(ns, name string) (pods []manager.PodStatus, next <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take()
	n := l.of(state.Pod{Namespace: ns, Name: name})
	for uid := range n.uids {
		pods = append(pods, l.pods[uid])
	}
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return pods, n.changed
}
