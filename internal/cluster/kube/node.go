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
// list of attached volumes, its attachment is forgotten and read again, before the reporter sees the
// Node and may allow the volume's calls. After a list all attachments are, because changes that were
// reverted since the last event are invisible.
func (p *Provider) nodeStream() *stream {
	var was attachedList
	compare := func(n *corev1.Node, listed bool) {
		is := attachedOf(n)
		p.apply(nodeUpdate(p.config.NodeName, n))
		p.relist(p.changedAttachments(was, is, listed), p.keysOf(is))
		was = is
		if p.config.OnNode != nil {
			p.config.OnNode(n)
		}
	}
	k := p.kinds[resolve.KindNode]
	return &stream{
		restored: p.serverRestored,
		list:     k.lister(""), watch: k.watcher(""), selector: "metadata.name=" + p.config.NodeName, logger: p.logger,
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

// changedAttachments returns the attachments of the CSI volumes that differ between the two lists, or
// all of them.
func (p *Provider) changedAttachments(was, is attachedList, all bool) map[source.Key]bool {
	changed := attachedList{}
	note := func(a, b attachedList) {
		for name, device := range a {
			if other, both := b[name]; all || !both || other != device {
				changed[name] = device
			}
		}
	}
	note(was, is)
	note(is, was)
	return p.keysOf(changed)
}

// keysOf returns the attachments of the CSI volumes in the list.
func (p *Provider) keysOf(list attachedList) map[source.Key]bool {
	keys := map[source.Key]bool{}
	for name := range list {
		if id, ok := strings.CutPrefix(string(name), "kubernetes.io/csi/"); ok {
			driver, handle, _ := strings.Cut(id, "^")
			keys[resolve.AttachmentKey(state.DriverName(driver), handle, p.config.NodeName)] = true
		}
	}
	return keys
}
