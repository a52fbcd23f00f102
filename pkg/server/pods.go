package server

import (
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// podList is one list of all pods, by name, for all that wait at one time. It is
// kept up to date by what changes, and wakes those alone whose pod that is.
type podList struct {
	follow func() PodFeed

	mu      sync.Mutex // guards all below
	waiting int
	feed    PodFeed // nil while no request waits
	pods    map[state.PodUID]manager.PodStatus
	byName  map[listedName]*namedPods
	stop    chan struct{} // ends the reader of the feed
}

type listedName struct{ ns, name string }

// namedPods are the pods of one name.
type namedPods struct {
	uids    map[state.PodUID]struct{}
	changed chan struct{} // closed when they may be others; nil while no request has asked for it
}

// join says that one more waits; leave, that it no longer does. Without any, no list is kept.
func (l *podList) join() (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting++; l.waiting == 1 {
		l.feed, l.stop = l.follow(), make(chan struct{})
		l.pods, l.byName = map[state.PodUID]manager.PodStatus{}, map[listedName]*namedPods{}
		go l.run(l.stop)
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiting--; l.waiting > 0 {
			return
		}
		close(l.stop)
		l.feed.Close()
		l.feed, l.pods, l.byName = nil, nil, nil
	}
}

// run takes what changes until stop.
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

// take brings the list up to date; l.mu is held.
func (l *podList) take() {
	changed, gone := l.feed.Take()
	for _, p := range gone {
		delete(l.pods, p.UID)
		n := l.of(p)
		delete(n.uids, p.UID)
		n.notify()
		if len(n.uids) == 0 {
			delete(l.byName, listedName{p.Namespace, p.Name})
		}
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

func (n *namedPods) notify() {
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// named returns the pods of a name as they are now, which are not to be changed,
// and a channel that is closed when they may be others. It is for who has joined.
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
