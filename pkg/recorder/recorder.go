// Package recorder is the flight recorder: the last calls of each volume, kept
// in memory for a person who asks what happened.
//
// Owns: the calls that the manager reported, up to [PerVolume] of each of [Volumes] volumes.
//
// Does not: make calls, write anything to a disk, or outlive the process; the
// log has every call, too.
//
// Concurrency: a [Recorder] may be used by any goroutine.
package recorder

import (
	"container/list"
	"slices"
	"strings"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// PerVolume is how many calls are kept of a volume, the first of them and
	// the last others: with the first, a long row of failures still tells how
	// it began.
	PerVolume = 16
	// Volumes bounds the volumes whose calls are kept; the one whose last
	// call is the oldest makes room.
	Volumes = 4096
)

// Recorder keeps calls. Its zero value is empty and ready.
type Recorder struct {
	mu      sync.Mutex // guards what follows
	volumes map[state.VolumeID]*list.Element
	// order has the calls of each volume (*kept), the one that was quiet for the
	// longest first.
	order list.List
}

// kept is what is known of one volume.
type kept struct {
	volume state.VolumeID
	// names are what people call the volume by, and pods those whose calls are or
	// were kept, as "namespace/name".
	names, pods []string
	calls       []call
}

// Record keeps a call, without the record and the pacing that went with it.
func (r *Recorder) Record(c manager.EndedCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.of(c.Volume)
	k.name(c)
	if len(k.calls) == PerVolume {
		k.calls = slices.Delete(k.calls, 1, 2)
	}
	k.calls = append(k.calls, smaller(c))
}

// maxPods bounds how many pods are kept of a volume.
const maxPods = 16

// name takes in what the volume and the call's pod are called.
func (k *kept) name(c manager.EndedCall) {
	if s := c.Of.Spec; s != nil && len(k.names) == 0 {
		_, bare, _ := strings.Cut(s.Claim, "/")
		for _, name := range []string{s.Name, s.Handle, s.Claim, bare} {
			if name != "" {
				k.names = append(k.names, name)
			}
		}
	}
	pod := c.Of.Mounts[c.Pod].Pod
	if name := pod.Namespace + "/" + pod.Name; pod.Name != "" && len(k.pods) < maxPods && !slices.Contains(k.pods, name) {
		k.pods = append(k.pods, name)
	}
}

// CallsNamed returns the volumes that have or had a name (the PersistentVolume's or the
// one within the pod, the handle, the claim), and kept calls.
func (r *Recorder) CallsNamed(name string) []state.VolumeID {
	return r.find(func(k *kept) bool { return slices.Contains(k.names, name) })
}

// CallsOfPod returns the volumes with kept calls for a pod ("namespace/name").
func (r *Recorder) CallsOfPod(name string) []state.VolumeID {
	return r.find(func(k *kept) bool { return slices.Contains(k.pods, name) })
}

func (r *Recorder) find(is func(*kept) bool) (ids []state.VolumeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := r.order.Front(); e != nil; e = e.Next() {
		if k := e.Value.(*kept); is(k) {
			ids = append(ids, k.volume)
		}
	}
	return ids
}

// of returns what is kept of the volume that a call has ended for, and makes
// room for a new one.
func (r *Recorder) of(volume state.VolumeID) *kept {
	if e, ok := r.volumes[volume]; ok {
		r.order.MoveToBack(e)
		return e.Value.(*kept)
	}
	if r.volumes == nil {
		r.volumes = map[state.VolumeID]*list.Element{}
	}
	if len(r.volumes) == Volumes {
		oldest := r.order.Remove(r.order.Front()).(*kept)
		delete(r.volumes, oldest.volume)
	}
	k := &kept{volume: volume}
	r.volumes[volume] = r.order.PushBack(k)
	return k
}

// Calls returns the calls kept of some volumes, by when they began.
func (r *Recorder) Calls(ids ...state.VolumeID) []manager.EndedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []manager.EndedCall
	for _, id := range ids {
		if e, ok := r.volumes[id]; ok {
			out = e.Value.(*kept).appendTo(out)
		}
	}
	return inOrder(out)
}

// AllCalls returns the calls kept of every volume, by when they began.
func (r *Recorder) AllCalls() []manager.EndedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []manager.EndedCall
	for e := r.order.Front(); e != nil; e = e.Next() {
		out = e.Value.(*kept).appendTo(out)
	}
	return inOrder(out)
}
