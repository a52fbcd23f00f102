package manager

import (
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// blockedQueue holds the waiting volumes of one driver whose calls remove something, or
// those whose calls do not. Namespaces take turns, in each namespace its pods do, and each pod's
// volumes come in order of arrival: a pod with 10,000 volumes delays another by one of them.
type blockedQueue struct {
	order      []string // the namespaces with waiting volumes; the first has the turn
	namespaces map[string]*namespaceTurns
}

// namespaceTurns are the turns of a namespace's pods.
type namespaceTurns struct {
	order []state.PodUID // the first has the turn
	keys  map[state.PodUID][]blockedKey
}

func (q *blockedQueue) empty() bool { return len(q.order) == 0 }

func (q *blockedQueue) push(of state.Pod, b blockedKey) {
	n := q.namespaces[of.Namespace]
	if n == nil {
		n = &namespaceTurns{keys: map[state.PodUID][]blockedKey{}}
		if q.namespaces == nil {
			q.namespaces = map[string]*namespaceTurns{}
		}
		q.namespaces[of.Namespace], q.order = n, append(q.order, of.Namespace)
	}
	if len(n.keys[of.UID]) == 0 {
		n.order = append(n.order, of.UID)
	}
	n.keys[of.UID] = append(n.keys[of.UID], b)
}

// head returns the volume whose turn it is.
func (q *blockedQueue) head() (blockedKey, bool) {
	if q.empty() {
		return blockedKey{}, false
	}
	n := q.namespaces[q.order[0]]
	return n.keys[n.order[0]][0], true
}

// pop removes the head and ends the turn of its pod and of its namespace.
func (q *blockedQueue) pop() {
	name := q.order[0]
	n := q.namespaces[name]
	uid := n.order[0]
	q.drop()
	if n.keys[uid] != nil {
		n.order = append(n.order[1:], uid)
	}
	if q.namespaces[name] != nil {
		q.order = append(q.order[1:], name)
	}
}

// drop removes the head and ends no turn, unless nothing is left of it.
func (q *blockedQueue) drop() {
	name := q.order[0]
	n := q.namespaces[name]
	uid := n.order[0]
	if n.keys[uid] = n.keys[uid][1:]; len(n.keys[uid]) == 0 {
		delete(n.keys, uid)
		n.order = n.order[1:]
	}
	if len(n.order) == 0 {
		delete(q.namespaces, name)
		q.order = q.order[1:]
	}
}

// turnOf returns the pod whose turns a call takes: the pod that it is for, or else the first of those
// that want the volume or have it.
func turnOf(op plan.Op, w state.Want, r state.Volume) state.Pod {
	uid := op.Pod
	if uid == "" {
		switch {
		case len(w.Pods) > 0:
			uid = slices.Min(slices.Collect(maps.Keys(w.Pods)))
		case len(r.Mounts) > 0:
			uid = slices.Min(slices.Collect(maps.Keys(r.Mounts)))
		}
	}
	of := state.Pod{UID: uid}
	if m, ok := w.Pods[uid]; ok {
		of.Namespace = m.Pod.Namespace
	} else {
		of.Namespace = r.Mounts[uid].Pod.Namespace
	}
	return of
}
