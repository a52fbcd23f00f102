// Package recorder is the flight recorder: it keeps the last calls of each volume in
// memory for people who ask what happened.
//
// Owns: the calls that the manager reported, up to [PerVolume] for each of [Volumes]
// volumes.
//
// Does not: make calls, write to a disk, or survive a restart; the log has every call,
// too.
//
// Concurrency: a [Recorder] is safe for concurrent use.
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
	// PerVolume is how many calls of a volume are kept: the first and the latest ones.
	// The first shows how a long series of failures began.
	PerVolume = 16
	// Volumes bounds the volumes whose calls are kept; the one whose last call is the
	// oldest makes room.
	Volumes = 4096
)

// Recorder keeps calls. Its zero value is empty and ready to use.
type Recorder struct {
	mu      sync.Mutex // guards the fields below
	volumes map[state.VolumeID]*list.Element
	// order holds the calls of each volume (*kept), least recently called first.
	order list.List
}

// kept holds the calls and names of one volume.
type kept struct {
	volume state.VolumeID
	// names are the names by which people call the volume. pods are the
	// "namespace/name" of the pods with recorded calls, including calls that were
	// dropped since.
	names, pods []string
	calls       []call
}

// Record keeps a call, without its copy of the volume's record.
func (r *Recorder) Record(c manager.EndedCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.of(c.Volume)
	k.addNames(c)
	if len(k.calls) == PerVolume {
		k.calls = slices.Delete(k.calls, 1, 2)
	}
	k.calls = append(k.calls, compact(c))
}

// maxPods bounds the pods that are kept for a volume.
const maxPods = 16

// addNames adds the names of the volume and of the call's pod.
func (k *kept) addNames(c manager.EndedCall) {
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

// CallsNamed returns the volumes with kept calls that have or had a name (that of the
// PersistentVolume, the name in the pod, the handle, or the claim).
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

// of returns the entry of a volume and marks it as the latest. For a new volume it
// makes room if necessary.
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

// Calls returns the kept calls of some volumes, by start time.
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

// AllCalls returns the kept calls of all volumes, by start time.
func (r *Recorder) AllCalls() []manager.EndedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []manager.EndedCall
	for e := r.order.Front(); e != nil; e = e.Next() {
		out = e.Value.(*kept).appendTo(out)
	}
	return inOrder(out)
}
