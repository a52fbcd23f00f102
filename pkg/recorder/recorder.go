// Package recorder is the flight recorder: the last calls of each volume, kept
// in memory for whoever asks what happened.
//
// Owns: the calls it was told of, up to [PerVolume] of each of [Volumes] volumes.
//
// Does not: make calls, write anything to a disk, or outlive the process; the
// log has every call, too.
//
// Concurrency: a [Recorder] may be used by any goroutine.
package recorder

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// PerVolume is how many calls are kept of a volume, the first of them and
	// the last others: with the first, a long row of failures still tells how
	// it began.
	PerVolume = 16
	// Volumes bounds the volumes of which calls are kept; the one whose last
	// call is the oldest makes room.
	Volumes = 4096
)

// Recorder keeps calls. Its zero value is empty and ready.
type Recorder struct {
	mu    sync.Mutex
	calls map[state.VolumeID][]manager.EndedCall
	// ended orders volumes by their last call.
	ended map[state.VolumeID]uint64
	clock uint64
}

// Record keeps a call.
func (r *Recorder) Record(c manager.EndedCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls, r.ended = map[state.VolumeID][]manager.EndedCall{}, map[state.VolumeID]uint64{}
	}
	kept := r.calls[c.Volume]
	if len(kept) == 0 && len(r.calls) == Volumes {
		r.dropOldest()
	}
	if len(kept) == PerVolume {
		kept = slices.Delete(kept, 1, 2)
	}
	r.calls[c.Volume] = append(kept, c)
	r.clock++
	r.ended[c.Volume] = r.clock
}

// dropOldest makes room. It walks all, which happens for a new volume beyond
// thousands only.
func (r *Recorder) dropOldest() {
	oldest := slices.MinFunc(slices.Collect(maps.Keys(r.ended)), func(a, b state.VolumeID) int { return cmp.Compare(r.ended[a], r.ended[b]) })
	delete(r.calls, oldest)
	delete(r.ended, oldest)
}

// Calls returns the calls kept of some volumes, by when they began.
func (r *Recorder) Calls(ids ...state.VolumeID) []manager.EndedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []manager.EndedCall
	for _, id := range ids {
		out = append(out, r.calls[id]...)
	}
	return inOrder(out)
}

// AllCalls returns the calls kept of every volume, by when they began.
func (r *Recorder) AllCalls() []manager.EndedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []manager.EndedCall
	for _, kept := range r.calls {
		out = append(out, kept...)
	}
	return inOrder(out)
}

func inOrder(out []manager.EndedCall) []manager.EndedCall {
	slices.SortStableFunc(out, func(a, b manager.EndedCall) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Volume, b.Volume))
	})
	return out
}
