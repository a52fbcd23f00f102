package kube

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// node returns the stream of this node's own object. When the volumes that it
// lists as attached change, attachments are read again.
func (p *Provider) node() *stream {
	var attached map[corev1.UniqueVolumeName]string
	tell := func(n *corev1.Node) {
		now := map[corev1.UniqueVolumeName]string{}
		if n != nil {
			for _, v := range n.Status.VolumesAttached {
				now[v.Name] = v.DevicePath
			}
			stripped(n)
		}
		if p.config.OnNode != nil {
			p.config.OnNode(n)
		}
		if attached != nil && !maps.Equal(attached, now) {
			p.again(func(k source.Key) bool { return k.Kind == resolve.KindVolumeAttachment })
		}
		attached = now
	}
	k := p.kinds[kindNode]
	return &stream{
		list: k.lister(""), watch: k.watcher(""), selector: "metadata.name=" + p.config.NodeName, logger: p.logger,
		report: func(err error, wait time.Duration) { p.failed("node "+p.config.NodeName, err, wait) },
		replace: func(objects []runtime.Object) {
			for _, o := range objects {
				if n, ok := o.(*corev1.Node); ok && n.Name == p.config.NodeName {
					tell(n)
					return
				}
			}
			tell(nil)
		},
		event: func(t watch.EventType, obj runtime.Object) bool {
			n, ok := obj.(*corev1.Node)
			switch {
			case !ok:
			case t == watch.Deleted:
				tell(nil)
			default:
				tell(n)
			}
			return false
		},
	}
}
