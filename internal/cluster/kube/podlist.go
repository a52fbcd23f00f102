package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// podStream returns the stream of this node's pods. known holds the restored ones.
func (p *Provider) podStream(known map[source.Key]*corev1.Pod) *stream {
	return &stream{
		restored: p.serverRestored,
		list:     p.kinds[resolve.KindPod].lister(""),
		watch:    p.kinds[resolve.KindPod].watcher(""),
		selector: p.selectsPods(),
		logger:   p.logger,
		report:   func(err error, wait time.Duration) { p.noteError(p.whatPods(), err, wait) },
		verify: func(ctx context.Context, objects []runtime.Object, version string) error {
			return p.confirmGone(ctx, known, objects, version)
		},
		replace: func(objects []runtime.Object) {
			p.applyPods(known, objects)
			p.setFinding(outage.Finding{What: whatRestored})
			p.config.Catalog.Synced(source.Kube)
		},
		event: func(t watch.EventType, obj runtime.Object) bool {
			pod, ok := obj.(*corev1.Pod)
			if !ok || !p.ours(pod) {
				return false
			}
			key := keyOf(pod)
			if t == watch.Deleted {
				delete(known, key)
				p.apply(source.Update{Delete: []source.Key{key}})
				return false
			}
			known[key] = pod
			p.apply(source.Update{Put: []runtime.Object{stripped(pod)}})
			return false
		},
	}
}

// selectsPods selects this node's pods.
func (p *Provider) selectsPods() string { return "spec.nodeName=" + p.config.NodeName }

// isMirror reports whether the pod is the API server's image of a static pod. The static pod comes
// from a manifest, and nothing on this node has the mirror's UID.
func isMirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// ours reports whether this node mounts the volumes of the pod. A server that does not apply the selector sends the
// pods of other nodes, too.
func (p *Provider) ours(pod *corev1.Pod) bool {
	if isMirror(pod) {
		return false
	}
	if pod.Spec.NodeName != p.config.NodeName {
		p.logger.Warn("the API server sent a pod of another node; it is left alone", "pod", pod.Namespace+"/"+pod.Name,
			"node", pod.Spec.NodeName)
		return false
	}
	return true
}

// applyPods replaces all pods and deletes those that are not listed.
func (p *Provider) applyPods(known map[source.Key]*corev1.Pod, objects []runtime.Object) {
	var u source.Update
	gone := p.missing(known, objects)
	for _, obj := range objects {
		pod, ok := obj.(*corev1.Pod)
		if !ok || !p.ours(pod) {
			continue
		}
		known[keyOf(pod)] = pod
		u.Put = append(u.Put, stripped(pod))
	}
	for _, key := range gone {
		delete(known, key)
		u.Delete = append(u.Delete, key)
	}
	p.apply(u)
}

// missing returns the keys of known pods that no pod among objects has, sorted. The pod itself under another
// node, which a server never changes, is left alone; another pod of its name on another node shows that it is
// gone.
func (p *Provider) missing(known map[source.Key]*corev1.Pod, objects []runtime.Object) []source.Key {
	gone := maps.Clone(known)
	for _, obj := range objects {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			continue
		}
		was := known[keyOf(pod)]
		if was != nil && (was.UID == pod.UID || pod.Spec.NodeName == p.config.NodeName && !isMirror(pod)) {
			delete(gone, keyOf(pod))
		}
	}
	return slices.SortedFunc(maps.Keys(gone), source.Key.Compare)
}

// confirmGone asks for each pod that only a new list shows to be gone, once more and by its name, and returns an error
// if the server still has it: one wrong list, such as an empty one, would unmount the volumes of running pods. A node's
// identity may list its pods by name, but not get one that is gone.
func (p *Provider) confirmGone(
	ctx context.Context, known map[source.Key]*corev1.Pod, objects []runtime.Object, version string,
) error {
	for _, key := range p.missing(known, objects) {
		list, err := p.kinds[resolve.KindPod].lister(key.Namespace)(ctx, metav1.ListOptions{
			FieldSelector: p.selectsPods() + ",metadata.name=" + key.Name,
		})
		if err != nil {
			return fmt.Errorf("list %s, which the list of all pods lacks: %w", key, err)
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("list %s: %w", key, err)
		}
		if older(m.GetResourceVersion(), version) {
			return fmt.Errorf("list %s: %w", key, &outage.BehindError{Has: m.GetResourceVersion(), Seen: version})
		}
		found, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("list %s: %w", key, err)
		}
		for _, obj := range found {
			if pod, ok := obj.(*corev1.Pod); ok && keyOf(pod) == key && pod.UID == known[key].UID {
				return fmt.Errorf("list: the answer lacks %s, which the API server still has", key)
			}
		}
	}
	return nil
}

func keyOf(pod *corev1.Pod) source.Key {
	return source.Key{Kind: resolve.KindPod, Namespace: pod.Namespace, Name: pod.Name}
}
