package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// follower keeps one object that pods need up to date in the catalog.
type follower struct {
	p    *Provider
	key  source.Key
	ctx  context.Context // ends when no pod needs the object any longer
	end  context.CancelFunc
	poke chan struct{} // capacity 1: requests another read

	uid     types.UID // of the object that the catalog has
	version string    // of the object that the catalog has
	// restores is the provider's when the object was put.
	restores int64
	// listing is that of [attachments] when the attachment that the catalog has was read.
	listing uint64
	refusal refusal
}

func newFollower(ctx context.Context, p *Provider, key source.Key) *follower {
	f := &follower{p: p, key: key, poke: make(chan struct{}, 1), uid: p.uids[key]}
	f.ctx, f.end = context.WithCancel(ctx)
	return f
}

// refetch requests another read of the object.
func (f *follower) refetch() {
	select {
	case f.poke <- struct{}{}:
	default:
	}
}

func (f *follower) run() {
	defer f.end()
	switch f.key.Kind {
	case resolve.KindSecret, resolve.KindConfigMap, resolve.KindCSIDriver:
		f.stream(f.ctx).run(f.ctx)
	case resolve.KindTrustBundles:
		f.bundleStream().run(f.ctx)
	case resolve.KindClaim:
		f.runClaim()
	case resolve.KindVolumeAttachment:
		f.runAttachment()
	default:
		f.get()
	}
}

// runClaim watches the claim if that is allowed, and otherwise polls it.
func (f *follower) runClaim() {
	mayWatch, done := f.p.claims.ask(f.ctx)
	defer done()
	if mayWatch {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		s := f.stream(ctx)
		report := s.report
		s.report = func(err error, wait time.Duration) {
			switch {
			case apierrors.IsForbidden(err):
				if f.p.claims.set(false) {
					f.p.logger.Info("this identity may not watch claims; reading them regularly", "every", f.p.config.Refresh)
				}
				mayWatch = false
				cancel()
				return
			case err == nil:
				f.p.claims.set(true)
			default:
				done() // let another claim try
			}
			report(err, wait)
		}
		s.run(ctx)
	}
	done()
	if f.ctx.Err() == nil && !mayWatch {
		f.get()
	}
}

// stream returns a list and watch of the one object.
func (f *follower) stream(ctx context.Context) *stream {
	k := f.p.kinds[f.key.Kind]
	immutable := false
	return &stream{
		restored: func() { f.version = "" },
		list:     f.p.lister(f.key), watch: k.watcher(f.key.Namespace),
		selector: "metadata.name=" + f.key.Name, logger: f.p.logger,
		report: func(err error, wait time.Duration) {
			if ctx.Err() == nil {
				f.noteError(err, wait)
			}
		},
		complete: func() bool { return immutable },
		replace: func(objects []runtime.Object) {
			at := slices.IndexFunc(objects, func(o runtime.Object) bool {
				m, ok := o.(metav1.Object)
				return ok && m.GetName() == f.key.Name
			})
			if at < 0 {
				f.delete()
				return
			}
			f.put(objects[at])
			immutable = isImmutable(objects[at])
		},
		event: func(t watch.EventType, obj runtime.Object) bool {
			if t == watch.Deleted {
				f.delete()
				return false
			}
			if m, ok := obj.(metav1.Object); ok && m.GetResourceVersion() != f.version {
				f.version = "" // events have an order of their own: after a restore versions begin again
			}
			f.put(obj)
			return isImmutable(obj)
		},
	}
}

// isImmutable reports whether the object can never change, so that it need not be watched.
func isImmutable(obj runtime.Object) bool {
	switch o := obj.(type) {
	case *corev1.Secret:
		return o.Immutable != nil && *o.Immutable
	case *corev1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}

// get reads the object once, and again on each poke and after each pause.
func (f *follower) get() {
	var b outage.Backoff
	for {
		wait := f.getOnce(&b)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-f.poke:
			timer.Stop()
		case <-f.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// never is a pause that only a poke ends.
const never = 1000 * time.Hour

// volumeRefresh is how often a PersistentVolume is read without an event; each pause is randomly extended by up to as
// much. A node's identity may get it but not watch it, and one that replaces it under its name need not change a claim.
const volumeRefresh = time.Hour

// getOnce reads the object and returns the pause before the next read.
func (f *follower) getOnce(b *outage.Backoff) time.Duration {
	if f.key.Kind == resolve.KindVolumeAttachment {
		return f.getAttachment(b)
	}
	obj, err := f.p.get(f.ctx, f.key)
	switch {
	case f.ctx.Err() != nil:
		return never
	case outage.Missing(err):
		f.noteError(nil, 0)
		f.delete()
		return b.Next(nil)
	case err != nil:
		wait := b.Next(err)
		f.noteError(err, wait)
		return wait
	}
	f.noteError(nil, 0)
	f.put(obj)
	pause, settled := never, true
	switch o := obj.(type) {
	case *resolve.Endpoints: // a node's identity may get them but not watch them
		pause = outage.Jitter(f.p.config.Refresh, 0.2)
	case *corev1.PersistentVolume:
		pause = outage.Jitter(volumeRefresh, 1)
	case *corev1.PersistentVolumeClaim:
		pause, settled = outage.Jitter(f.p.config.Refresh, 0.2), o.Status.Phase == corev1.ClaimBound
	}
	if !settled {
		return b.Next(nil)
	}
	*b = outage.Backoff{}
	return pause
}

// put delivers the object to the catalog. It deletes a previous object of the same name with
// another UID first, because the rules for changes of one object do not apply between two objects.
func (f *follower) put(obj runtime.Object) {
	m, ok := obj.(metav1.Object)
	restores := f.p.restores.Load()
	if !ok || f.uid == m.GetUID() && f.restores == restores && (f.version == m.GetResourceVersion() ||
		older(m.GetResourceVersion(), f.version)) {
		return // already known, or outdated; after a restore a version may be another object's
	}
	u := source.Update{Put: []runtime.Object{stripped(obj)}}
	if f.uid != "" && f.uid != m.GetUID() {
		u.Delete = []source.Key{f.key}
	}
	f.uid, f.version, f.restores = m.GetUID(), m.GetResourceVersion(), restores
	// A controller that expands a volume then updates its claim. So the claim's change is the
	// moment to read the volume again. A volume that gets its first follower because of the claim
	// is read anyway.
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName != "" {
		volume := source.Key{Kind: resolve.KindVolume, Name: claim.Spec.VolumeName}
		f.p.refetch(func(k source.Key) bool { return k == volume })
	}
	f.apply(u)
}

func (f *follower) delete() {
	f.uid, f.version = "", ""
	f.apply(source.Update{Delete: []source.Key{f.key}})
}

// apply delivers u unless no pod needs the object any longer: follow ends the follower before it
// makes the catalog forget the object.
func (f *follower) apply(u source.Update) {
	if f.ctx.Err() == nil {
		f.p.apply(u)
	}
}

// noteError reports the error of an attempt; nil clears it.
func (f *follower) noteError(err error, wait time.Duration) {
	if f.ctx.Err() != nil {
		return
	}
	changed := f.p.note(f.key.String(), err)
	if level, log := f.refusal.levelOf(err, changed, time.Now()); log {
		f.p.logError(level, f.key.String(), err, wait)
	}
	if err != nil {
		f.apply(source.Update{Remote: source.Remote{Unread: map[source.Key]string{f.key: fmt.Sprintf("not read: %s",
			outage.Explain(err))}}})
	}
}
