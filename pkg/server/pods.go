package server

import (
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// lookShare bounds what all waits together take of one CPU: the list of pods is
// made anew at the earliest when lookShare times as long has passed as it took.
// With 5,000 pods it takes 10 ms.
const lookShare = 4

// podList is one list of all pods, by name, for all that wait at one time: they
// are all woken by every change.
type podList struct {
	volumes Volumes

	mu      sync.Mutex // guards all below
	waiting int
	next    <-chan struct{} // closed when the list is out of date; nil where there is none
	byName  map[listedName][]manager.PodStatus
	made    time.Time
	took    time.Duration
}

type listedName struct{ ns, name string }

// join says that one more waits; leave, that it no longer does. Without any, no list is kept.
func (l *podList) join() (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiting--; l.waiting == 0 {
			l.next, l.byName = nil, nil
		}
	}
}

// named returns the pods of a name, which are not to be changed, and a channel
// that is closed when they may be others.
func (l *podList) named(ns, name string) (pods []manager.PodStatus, next <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.next:
		l.next = nil
	default:
	}
	if l.next == nil {
		l.next = l.volumes.Changed() // before the look, so that no change is missed
		began := time.Now()
		l.byName = map[listedName][]manager.PodStatus{}
		for _, p := range l.volumes.Pods() {
			k := listedName{p.Pod.Namespace, p.Pod.Name}
			l.byName[k] = append(l.byName[k], p)
		}
		l.made = time.Now()
		l.took = l.made.Sub(began)
	}
	return l.byName[listedName{ns, name}], l.next
}

// pause is how long to wait until the list may be made anew.
func (l *podList) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.made.Add(lookShare * l.took))
}
