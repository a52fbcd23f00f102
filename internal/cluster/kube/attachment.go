package kube

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// attachments knows which attachments' volumes the Node lists in volumesAttached, and since when.
//
// An attached VolumeAttachment is delivered only if its read began after the Node that lists the
// volume was seen. Earlier, it may be the volume's previous attachment: the controller takes the
// volume from the Node's list first, and a DELETE may take long. Its publish context may name a device
// that has another volume since.
type attachments struct {
	// seen is closed when the server has said what the Node lists. What is read before is of no use.
	seen chan struct{}
	once sync.Once

	// mu guards the field below. It is held while an attachment is delivered or forgotten, so that
	// none is delivered after the Node has said that it may be another one.
	mu sync.Mutex
	// since has the listed attachments, each with the number of the Node that listed it last.
	since map[source.Key]uint64
	// nodes counts the Nodes that changed since.
	nodes uint64
}

func newAttachments() *attachments {
	return &attachments{seen: make(chan struct{}), since: map[source.Key]uint64{}}
}

// listing returns the number of the Node that listed the attachment's volume last; 0 if the newest Node
// does not list it.
func (a *attachments) listing(key source.Key) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[key]
}

// relist makes the catalog forget the attachments whose volumes have entered or left the Node's list,
// and has them read again. is holds the attachments that the Node lists.
func (p *Provider) relist(changed, is map[source.Key]bool) {
	a := p.attachments
	defer a.once.Do(func() { close(a.seen) })
	if len(changed) == 0 {
		return
	}
	a.mu.Lock()
	a.nodes++
	for key := range changed {
		if is[key] {
			a.since[key] = a.nodes
		} else {
			delete(a.since, key)
		}
	}
	p.apply(source.Update{Remote: source.Remote{Forget: slices.SortedFunc(maps.Keys(changed), source.Key.Compare)}})
	a.mu.Unlock()
	p.refetch(func(k source.Key) bool { return changed[k] })
}

// runAttachment reads the attachment from the time that it is known what the Node lists.
func (f *follower) runAttachment() {
	select {
	case <-f.p.attachments.seen:
		f.get()
	case <-f.ctx.Done():
	}
}

// getAttachment reads the attachment once and returns the pause before the next read.
func (f *follower) getAttachment(b *outage.Backoff) time.Duration {
	a := f.p.attachments
	select {
	case <-f.poke: // requested before this read, which will do
	default:
	}
	began := a.listing(f.key)
	obj, err := f.p.get(f.ctx, f.key)
	if f.ctx.Err() != nil {
		return never
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since[f.key] != began {
		return never // relist requests another read
	}
	if f.listing != began {
		f.listing, f.uid, f.version = began, "", "" // the catalog has forgotten it
	}
	va, ok := obj.(*storagev1.VolumeAttachment)
	switch {
	case outage.Missing(err):
		f.noteError(nil, 0)
		f.delete()
		return b.Next(nil)
	case err != nil:
		wait := b.Next(err)
		f.noteError(err, wait)
		return wait
	case ok && va.Status.Attached && began == 0:
		f.noteError(nil, 0)
		f.uid, f.version = "", ""
		f.apply(source.Update{Remote: source.Remote{Forget: []source.Key{f.key}, Unread: map[source.Key]string{
			f.key: "status.attached: true, but status.volumesAttached of Node " + f.p.config.NodeName +
				" does not list its volume: it may be a previous attachment",
		}}})
		return b.Next(nil) // the next attachment may fail, which no Node announces
	}
	f.noteError(nil, 0)
	f.put(obj)
	if !ok || !va.Status.Attached { // the node's volumesAttached does not announce a failed attachment
		return b.Next(nil)
	}
	*b = outage.Backoff{}
	return never
}

// attachedList is the Node's list of attached volumes, with their devices.
type attachedList map[corev1.UniqueVolumeName]string

func attachedOf(n *corev1.Node) attachedList {
	list := attachedList{}
	if n != nil {
		for _, v := range n.Status.VolumesAttached {
			list[v.Name] = v.DevicePath
		}
	}
	return list
}
