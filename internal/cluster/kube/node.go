package kube

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// nodeStream returns the stream of this node's Node object. When a volume enters or leaves the Node's
// list of attached volumes, its attachment is read again. After a list all attachments are, because
// changes that were reverted since the last event are invisible.
func (p *Provider) nodeStream() *stream {
	var attached map[corev1.UniqueVolumeName]string
	compare := func(n *corev1.Node, listed bool) {
		now := map[corev1.UniqueVolumeName]string{}
		if n != nil {
			for _, v := range n.Status.VolumesAttached {
				now[v.Name] = v.DevicePath
			}
		}
		p.apply(nodeUpdate(p.config.NodeName, n))
		if p.config.OnNode != nil {
			p.config.OnNode(n)
		}
		changed := p.attachments(attached, now)
		if attached != nil && (listed || len(changed) > 0) {
			p.refetch(func(k source.Key) bool { return k.Kind == resolve.KindVolumeAttachment && (listed || changed[k]) })
		}
		attached = now
	}
	k := p.kinds[resolve.KindNode]
	return &stream{
		list: k.lister(""), watch: k.watcher(""), selector: "metadata.name=" + p.config.NodeName, logger: p.logger,
		report: func(err error, wait time.Duration) {
			p.noteError(p.whatNode(), err, wait)
			if apierrors.IsForbidden(err) && p.config.OnNodeRefused != nil {
				p.config.OnNodeRefused()
			}
		},
		replace: func(objects []runtime.Object) {
			for _, o := range objects {
				if n, ok := o.(*corev1.Node); ok && n.Name == p.config.NodeName {
					compare(n, true)
					return
				}
			}
			compare(nil, true)
		},
		event: func(t watch.EventType, obj runtime.Object) bool {
			n, ok := obj.(*corev1.Node)
			switch {
			case !ok:
			case t == watch.Deleted:
				compare(nil, true)
			default:
				compare(n, false)
			}
			return false
		},
	}
}

// nodeUpdate returns the update with the node's labels, which decide whether a volume is usable
// here, and its allocatable resources.
func nodeUpdate(name string, n *corev1.Node) source.Update {
	if n == nil {
		return source.Update{Delete: []source.Key{{Kind: resolve.KindNode, Name: name}}}
	}
	return source.Update{Put: []runtime.Object{&resolve.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   n.Name,
		Labels: n.Labels,
	}, Allocatable: n.Status.Allocatable}}}
}

// attachments returns the attachments of the CSI volumes that differ between the two lists.
func (p *Provider) attachments(was, is map[corev1.UniqueVolumeName]string) map[source.Key]bool {
	changed := map[source.Key]bool{}
	note := func(a, b map[corev1.UniqueVolumeName]string) {
		for name, device := range a {
			if other, both := b[name]; both && other == device {
				continue
			}
			if id, ok := strings.CutPrefix(string(name), "kubernetes.io/csi/"); ok {
				driver, handle, _ := strings.Cut(id, "^")
				changed[resolve.AttachmentKey(state.DriverName(driver), handle, p.config.NodeName)] = true
			}
		}
	}
	note(was, is)
	note(is, was)
	return changed
}
