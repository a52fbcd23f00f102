package manager

import (
	"container/heap"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// queue is a set of volumes or pods in order of arrival. Filling and emptying it costs time
// proportional to its current length, not to its greatest length so far.
type queue[K ~string] struct {
	ids  []K
	next int // index in ids of the first one that was not popped
	in   set[K]
}

func newQueue[K ~string]() queue[K] { return queue[K]{in: set[K]{}} }

func (q *queue[K]) push(id K) {
	if q.in.has(id) {
		return
	}
	q.in[id] = struct{}{}
	q.ids = append(q.ids, id)
}

func (q *queue[K]) pop() (id K, ok bool) {
	if q.next == len(q.ids) {
		q.ids, q.next = q.ids[:0], 0
		return "", false
	}
	id, q.ids[q.next] = q.ids[q.next], ""
	q.next++
	delete(q.in, id)
	return id, true
}

// wakes holds the times at which volumes have to be planned again even if no event comes.
type wakes struct {
	heap wakeHeap                     // entries that differ from at are stale
	at   map[state.VolumeID]time.Time // the current times
}

type wake struct {
	at time.Time
	id state.VolumeID
}

// set sets when id is due; the zero time means never.
func (w *wakes) set(id state.VolumeID, at time.Time) {
	if at.IsZero() {
		delete(w.at, id)
		return
	}
	if w.at == nil {
		w.at = map[state.VolumeID]time.Time{}
	}
	if w.at[id].Equal(at) {
		return
	}
	w.at[id] = at
	heap.Push(&w.heap, wake{at, id})
	if len(w.heap) > 2*len(w.at)+mostStale {
		w.dropStale()
	}
}

// mostStale is how many stale entries wakes keeps besides one for each current time. A stale
// entry leaves by itself only at its time, which for a certificate is months ahead, while
// volumes come and go.
const mostStale = 64

// dropStale makes the heap anew from the current times.
func (w *wakes) dropStale() {
	w.heap = w.heap[:0]
	for id, at := range w.at {
		w.heap = append(w.heap, wake{at, id})
	}
	heap.Init(&w.heap)
}

// next returns the earliest time at which a volume is due, if there is one.
func (w *wakes) next() (time.Time, bool) {
	for len(w.heap) > 0 {
		if top := w.heap[0]; w.at[top.id].Equal(top.at) {
			return top.at, true
		}
		heap.Pop(&w.heap)
	}
	return time.Time{}, false
}

// due removes the volumes that are due at now and returns them.
func (w *wakes) due(now time.Time) []state.VolumeID {
	var ids []state.VolumeID
	for {
		at, ok := w.next()
		if !ok || at.After(now) {
			return ids
		}
		id := w.heap[0].id
		delete(w.at, id)
		ids = append(ids, id)
	}
}

type wakeHeap []wake

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h wakeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *wakeHeap) Push(x any)        { *h = append(*h, x.(wake)) }
func (h *wakeHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
